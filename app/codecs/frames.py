"""`pd` and `pd_json`: DataFrames with one tensor per column (C6). The first DataFrame imports pandas."""

from __future__ import annotations

import json
import re
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from app.codecs.arrays import NumpyCodec, datatype_name
from app.codecs.base import (
    InputCodec,
    RequestCodec,
    batch,
    decode_tensor,
    register_input_codec,
    register_request_codec,
)
from app.codecs.datetimes import DatetimeCodec, parse_datetime
from app.codecs.strings import StringCodec, TextCodec, as_list, text_tensor
from app.protocol.datatypes import SCALARS, bytes_array, format_shape, object_array
from app.protocol.errors import InferenceError, InvalidInput, shorten
from app.protocol.tensors import Tensor

if TYPE_CHECKING:
    import pandas as pd
    from pandas.api.extensions import ExtensionArray

# Floats represent all integers up to this value exactly.
EXACT = 2**53
# Nullable dtypes of pandas, by NumPy's letter for the kind.
NULLABLE = {"i": "Int64", "u": "UInt64", "b": "boolean"}
# Text of a missing datetime in pandas and NumPy.
NO_TIME = "NaT"
# Datetimes that pandas parses like Python: at most nine decimal places for seconds, and no seconds in the offset.
MOMENT = re.compile(
    r"(?!0000)\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(?P<offset>Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)


@register_input_codec
class PandasJsonCodec(TextCodec):
    """Lists of values that are encoded as JSON text: lists, dicts and missing values, for example."""

    ContentType = "pd_json"
    TypeHint = list

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        try:
            texts = [
                json.dumps(to_plain(each), ensure_ascii=False, separators=(",", ":"))
                for each in as_list(payload)
            ]
        except (ValueError, RecursionError) as error:
            raise InvalidInput("JSON cannot represent a value", got=str(error)) from None
        return text_tensor(texts, use_bytes)

    @classmethod
    def decode(cls, tensor: Tensor) -> list[Any]:
        texts: list[Any] = cls.texts(tensor)
        try:
            cells = [
                json.loads(each, parse_constant=parse_finite, parse_float=parse_finite)
                for each in texts
            ]
            for each, text in zip(cells, texts, strict=True):
                if r"\u" in text:
                    json.dumps(each, ensure_ascii=False).encode()  # ValueError for a lone surrogate
            return cells
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidInput("invalid JSON", got=str(error)) from None


def parse_finite(text: str) -> float:
    number = float(text)
    if not np.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def to_plain(value: Any) -> Any:
    """Convert `value` to JSON types. Raise InvalidInput for values that JSON would change, such as NaN."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "mM":
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: to_plain(each) for key, each in value.items()}
    raise InvalidInput(f"JSON cannot represent {type(value).__name__}", got=shorten(repr(value)))


class EncodedColumn(NamedTuple):
    datatype: str
    array: np.ndarray  # [N]
    content_type: str | None = None


def encode_column(series: pd.Series, missing: type[InputCodec] = PandasJsonCodec) -> EncodedColumn:
    """Encode a Series, an Index or a pandas array.

    `missing` is the codec for text with missing values. `pd_json` also supports them in binary form, `str` only in
    JSON. Raise InvalidInput if the encoding would change a value.
    """
    import pandas as pd

    series = series if isinstance(series, pd.Series) else pd.Series(series)
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        plain_dtype = dtype.categories.dtype
        if not series.isna().any():
            return encode_column(series.astype(plain_dtype), missing)
        if isinstance(plain_dtype, np.dtype):
            plain_dtype = NULLABLE.get(plain_dtype.kind, plain_dtype)
        return encode_column(pd.array(column_values(series), dtype=plain_dtype), missing)
    if isinstance(dtype, pd.SparseDtype):
        return encode_column(series.sparse.to_dense(), missing)
    if isinstance(dtype, pd.DatetimeTZDtype) or dtype.kind == "M":
        return encode_moments(column_values(series))
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return encode_array(series.to_numpy())
    if dtype.kind in "biuf":
        return encode_nullable(series)
    return encode_objects(series, missing)


def encode_array(array: np.ndarray) -> EncodedColumn:
    return EncodedColumn(datatype_name(array.dtype), array)


def encode_nullable(series: pd.Series) -> EncodedColumn:
    """Encode numbers or booleans of nullable dtypes. Missing values are NaN if floats represent the others exactly."""
    dtype = series.dtype
    numpy_dtype = np.dtype(getattr(dtype, "numpy_dtype", None) or dtype.kind)
    if not series.isna().any():
        return encode_array(series.to_numpy(dtype=numpy_dtype))
    present = series.dropna()
    if dtype.kind == "f" or (
        dtype.kind in "iu" and all(abs(each) <= EXACT for each in present.tolist())
    ):
        return encode_array(
            series.to_numpy(numpy_dtype if dtype.kind == "f" else np.float64, na_value=np.nan)
        )
    datatype, array = PandasJsonCodec.encode(column_values(series))
    return EncodedColumn(datatype, array.reshape(-1), PandasJsonCodec.ContentType)


def encode_moments(elements: list[Any]) -> EncodedColumn:
    """Encode dates or datetimes. None is a missing value."""
    datatype, array = DatetimeCodec.encode(elements, missing=NO_TIME)
    return EncodedColumn(datatype, array.reshape(-1), DatetimeCodec.ContentType)


def column_values(series: Any) -> list[Any]:
    """Return the elements of a column. NaN, NA and NaT become None."""
    return [
        None if gap else each
        for gap, each in zip(series.isna(), series.astype(object), strict=True)
    ]


def encode_objects(series: pd.Series, missing: type[InputCodec]) -> EncodedColumn:
    """Encode Python objects according to their types."""
    elements = column_values(series)
    types = {SCALARS.get(each, each) for each in set(map(type, elements))}
    kinds = types - {type(None)}
    if kinds == {bytes} and (kinds == types or missing is StringCodec):
        return EncodedColumn("BYTES", bytes_array(object_array(elements)))
    if kinds and all(issubclass(each, date) for each in kinds):
        return encode_moments(elements)
    is_text = types <= {str} or (kinds <= {str} and missing is StringCodec)
    codec: Any = StringCodec if is_text else PandasJsonCodec
    datatype, array = codec.encode(object_array(elements))
    return EncodedColumn(datatype, array.reshape(-1), codec.ContentType)


def decode_column(tensor: Tensor) -> pd.Series | ExtensionArray | np.ndarray:
    """Decode a column. Its dtype depends on the datatype and, for BYTES, on the content type."""
    import pandas as pd

    if not tensor.shape:
        raise InvalidInput(subject="shape", expected="one or more dimensions", got="[]").about(
            tensor.kind, tensor.name
        )
    rows, content_type = tensor.shape[0], tensor.parameters.get("content_type")
    values: Any
    if content_type == DatetimeCodec.ContentType:
        try:
            values = decode_datetimes(tensor)
        except InferenceError as error:
            raise error.about(tensor.kind, tensor.name) from None
        if len(values) == rows:
            return values
        values = list(values)
    else:
        values = decode_tensor(tensor, NumpyCodec)
    if isinstance(values, list) and len(values) == tensor.data.size != rows:
        values = object_array(values).reshape(tensor.shape)
    if isinstance(values, np.ndarray) and values.size == len(values):
        values = values.reshape(len(values))
        return pd.Series(values, copy=False) if values.dtype.kind == "O" else values
    is_list = isinstance(values, list)
    if isinstance(values, np.ndarray) or (
        is_list and not set(map(type, values)) <= {str, type(None)}
    ):
        return pd.Series(object_array(list(values)), dtype=object)
    return (
        pd.array(values, dtype=text_dtype())
        if content_type == StringCodec.ContentType
        else pd.Series(values)
    )


@cache
def text_dtype() -> Any:
    """Return the pandas dtype for text. Before pandas 3, this is object."""
    import pandas as pd

    return pd.Series([""]).dtype


def decode_datetimes(tensor: Tensor) -> pd.Series:
    """Decode a column of datetimes, in UTC if they have offsets. NaT is a missing value.

    Datetimes outside the range of pandas are Python objects. Raise InvalidInput as DatetimeCodec does, and if only some
    datetimes have an offset.
    """
    import pandas as pd

    texts = [NO_TIME if each is None else each for each in DatetimeCodec.texts(tensor)]
    matches = [MOMENT.fullmatch(text) for text in texts if text != NO_TIME]
    aware = {match["offset"] is not None for match in matches if match}
    try:
        if all(matches) and len(aware) < 2:
            moments = pd.to_datetime(texts, format="ISO8601", utc=True in aware)
            # In pandas 3, an empty column has the unit seconds.
            return pd.Series(moments.as_unit("us") if moments.unit == "s" else moments)
    except ValueError:  # outside the range of pandas, or not a calendar day
        pass
    moments = [pd.NaT if text == NO_TIME else parse_datetime(text) for text in texts]
    aware = {moment.tzinfo is not None for moment in moments if moment is not pd.NaT}
    if len(aware) > 1:
        raise InvalidInput(
            subject="data", expected="datetimes that all have an offset, or none", got="both"
        )
    try:
        return pd.Series(pd.to_datetime(moments, utc=True in aware))
    except pd.errors.OutOfBoundsDatetime:
        return pd.Series(object_array(moments), dtype=object)


@register_request_codec
class PandasCodec(RequestCodec):
    """DataFrames with one tensor per column."""

    ContentType = "pd"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_frame(payload)

    @classmethod
    def encode(cls, payload: pd.DataFrame, make: Any, **options: Any) -> list[Any]:
        """Return one tensor [N,1] of the class `make` per column. Omit the index."""
        tensors = []
        for name, series in payload.items():
            if not isinstance(name, str):
                raise InvalidInput(
                    subject="column name", expected="a string", got=shorten(repr(name))
                )
            try:
                column = encode_column(series)
            except InferenceError as error:
                raise error.about("column", name) from None
            parameters = {"content_type": column.content_type} if column.content_type else None
            tensors.append(
                make(name, column.datatype, data=batch(column.array), parameters=parameters)
            )
        if len({tensor.name for tensor in tensors}) < len(tensors):
            raise InvalidInput("Two columns have the same name.")
        return tensors

    @classmethod
    def decode(cls, tensors: list[Any]) -> pd.DataFrame:
        import pandas as pd

        columns = {tensor.name: decode_column(tensor) for tensor in tensors}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            each = ", ".join(f'"{tensor.name}" {format_shape(tensor.shape)}' for tensor in tensors)
            raise InvalidInput(
                "columns have different numbers of rows", expected="the same number", got=each
            )
        return pd.DataFrame(columns, index=pd.RangeIndex(*lengths) if lengths else None, copy=False)


def is_pandas(value: Any) -> bool:
    """Return True if `value` has a pandas class. Does not import pandas, which may not be installed."""
    return type(value).__module__.partition(".")[0] == "pandas"


def is_frame(value: Any) -> bool:
    return is_pandas(value) and type(value).__name__ == "DataFrame"


def is_column(value: Any) -> bool:
    """Return True if `value` is a Series, an Index or a pandas array."""
    return is_pandas(value) and hasattr(value, "dtype")
