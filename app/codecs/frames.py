"""`pd` and `pd_json`: DataFrames, a tensor a column (C6). pandas is imported when a frame is first met."""

from __future__ import annotations

import json
import re
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

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
from app.codecs.datetimes import DatetimeCodec, iso_text, parse
from app.codecs.strings import StringCodec, TextCodec, as_list, text_tensor
from app.datatypes import SCALARS, bytes_array, object_array, shape_text
from app.errors import InferenceError, InvalidInput
from app.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput, Tensor

if TYPE_CHECKING:
    import pandas as pd
    from pandas.api.extensions import ExtensionArray

# The largest integers up to which a float tells each from the next.
EXACT = 2**53
# pandas' dtypes with gaps, by numpy's letter of the kind.
NULLABLE = {"i": "Int64", "u": "UInt64", "b": "boolean"}
# A gap in a column of moments, as pandas and numpy write it.
NO_TIME = "NaT"
# The moments that pandas reads as Python does: of at most nine digits of a second, and no seconds in the offset.
MOMENT = re.compile(
    r"(?!0000)\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(?P<offset>Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


@register_input_codec
class PandasJsonCodec(TextCodec):
    """A list of JSON values, a text each: lists, dicts, and cells that may be missing."""

    ContentType = "pd_json"
    TypeHint = list

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, list)

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        try:
            texts = [json.dumps(plain(each), ensure_ascii=False, separators=(",", ":")) for each in as_list(payload)]
        except (ValueError, RecursionError) as error:
            raise InvalidInput("JSON cannot represent a value", subject="data", got=str(error)) from None
        return text_tensor(texts, use_bytes)

    @classmethod
    def decode(cls, tensor: Tensor) -> list:
        texts: list = cls.texts(tensor)
        try:
            cells = [json.loads(each, parse_constant=refuse_constant, parse_float=finite) for each in texts]
            for each, text in zip(cells, texts, strict=True):
                if r"\u" in text:
                    json.dumps(each, ensure_ascii=False).encode()  # a ValueError where half of a pair is told
            return cells
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidInput("not JSON", subject="data", got=str(error)) from None


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def finite(text: str) -> float:
    if np.isinf(number := float(text)):
        raise ValueError(f"{text} is beyond what a float holds")
    return number


def plain(value: Any) -> Any:
    """`value` in JSON's own types; InvalidInput for what JSON would alter: NaN, keys that are no strings, objects."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "mM":
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(each) for key, each in value.items()}
    raise InvalidInput(f"JSON cannot represent {type(value).__name__}", subject="data", got=value)


def encode_column(series: pd.Series, missing: type[InputCodec] = PandasJsonCodec) -> tuple[str, np.ndarray, str | None]:
    """The datatype, the array and the content type of a column, [N]; of an Index or pandas' array, too.

    `missing` is the codec of text with gaps: `pd_json` has them in every form on the wire, `str` in JSON alone.
    Raises InvalidInput where the wire has no form of a value that keeps it.
    """
    import pandas as pd

    series = series if isinstance(series, pd.Series) else pd.Series(series)
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return encode_column(without_categories(series), missing)
    if isinstance(dtype, pd.SparseDtype):
        return encode_column(series.sparse.to_dense(), missing)
    if isinstance(dtype, pd.DatetimeTZDtype) or dtype.kind == "M":
        return encode_moments(cells(series))
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        array = series.to_numpy()
        return datatype_name(array.dtype), array, None
    if dtype.kind in "biuf":
        return encode_nullable(series)
    return encode_objects(series, missing)


def without_categories(series: pd.Series) -> pd.Series:
    """The values of a categorical column; integers and booleans with gaps in pandas' own dtypes."""
    import pandas as pd

    dtype = series.dtype.categories.dtype
    if not series.isna().any():
        return series.astype(dtype)
    if isinstance(dtype, np.dtype):
        dtype = NULLABLE.get(dtype.kind, dtype)
    return pd.Series(pd.array(cells(series), dtype=dtype))


def encode_nullable(series: pd.Series) -> tuple[str, np.ndarray, str | None]:
    """A column of numbers or booleans of pandas' own dtypes: gaps are NaN where that alters no other value."""
    dtype = series.dtype
    numpy_dtype = np.dtype(getattr(dtype, "numpy_dtype", None) or dtype.kind)
    if not series.isna().any():
        array = series.to_numpy(dtype=numpy_dtype)
        return datatype_name(array.dtype), array, None
    present = series.dropna()
    if dtype.kind == "f" or (dtype.kind in "iu" and all(abs(each) <= EXACT for each in present.tolist())):
        array = series.to_numpy(dtype=numpy_dtype if dtype.kind == "f" else np.float64, na_value=np.nan)
        return datatype_name(array.dtype), array, None
    datatype, array = PandasJsonCodec.encode(cells(series))
    return datatype, array.reshape(-1), PandasJsonCodec.ContentType


def encode_moments(elements: list) -> tuple[str, np.ndarray, str | None]:
    """A column of dates or datetimes, None being a gap."""
    texts = [NO_TIME if each is None else iso_text(each) for each in elements]
    return "BYTES", bytes_array(object_array(texts)), DatetimeCodec.ContentType


def cells(series: Any) -> list:
    """The elements of a column, its gaps (NaN, NA, NaT) as None."""
    return [None if gap else each for gap, each in zip(series.isna(), series.astype(object), strict=True)]


def encode_objects(series: pd.Series, missing: type[InputCodec]) -> tuple[str, np.ndarray, str | None]:
    """A column of Python objects, by what they are."""
    elements = cells(series)
    types = {SCALARS.get(each, each) for each in set(map(type, elements))}
    kinds = types - {type(None)}
    if kinds == {bytes} and (kinds == types or missing is StringCodec):
        return "BYTES", bytes_array(object_array(elements)), None
    if kinds and all(issubclass(each, date) for each in kinds):
        return encode_moments(elements)
    if types <= {str} or (kinds <= {str} and missing is StringCodec):
        codec: Any = StringCodec
    else:
        codec = PandasJsonCodec
    datatype, array = codec.encode(object_array(elements))
    return datatype, array.reshape(-1), codec.ContentType


def decode_column(tensor: Tensor) -> pd.Series | ExtensionArray | np.ndarray:
    """The column that `tensor` is; its dtype follows the datatype, and its content type for BYTES."""
    import pandas as pd

    if not tensor.shape:
        raise InvalidInput(subject="shape", expected="rows for a column", got="[]").about(tensor.kind, tensor.name)
    values: Any
    if tensor.parameters.get("content_type") == DatetimeCodec.ContentType:
        try:
            values = decode_datetimes(tensor)
        except InferenceError as error:
            raise error.about(tensor.kind, tensor.name) from None
        if len(values) == tensor.shape[0]:
            return values
        values = list(values)
    else:
        values = decode_tensor(tensor, NumpyCodec)
    if isinstance(values, list) and len(values) == tensor.data.size != tensor.shape[0]:
        values = object_array(values).reshape(tensor.shape)
    if isinstance(values, np.ndarray):
        if values.size == len(values):
            values = values.reshape(len(values))
            return pd.Series(values, copy=False) if values.dtype.kind == "O" else values
        return pd.Series(object_array(list(values)), dtype=object)
    if isinstance(values, list) and not set(map(type, values)) <= {str, type(None)}:
        return pd.Series(object_array(values), dtype=object)
    if tensor.parameters.get("content_type") == StringCodec.ContentType:  # text, gaps among it
        return pd.array(values, dtype=text_dtype())
    return pd.Series(values)


@cache
def text_dtype() -> Any:
    """What pandas makes of text, as it is set when first asked; before pandas 3, objects."""
    import pandas as pd

    return pd.Series([""]).dtype


def decode_datetimes(tensor: Tensor) -> pd.Series:
    """A column of moments, in UTC where they have offsets, whatever their neighbours'; NaT is a gap.

    Those that pandas' datetimes cannot hold are datetimes of Python. Raises InvalidInput for what is not ISO 8601, for
    null, and where some have an offset and some have none.
    """
    import pandas as pd

    texts: list = DatetimeCodec.texts(tensor)
    if None in texts:
        remedy = f'use "{NO_TIME}" for a missing value in a column'
        raise InvalidInput(subject="data", expected="datetimes in ISO 8601", got="null", remedy=remedy)
    matches = [MOMENT.fullmatch(text) for text in texts if text != NO_TIME]
    aware = {match["offset"] is not None for match in matches if match}
    try:
        if all(matches) and len(aware) < 2:
            moments = pd.to_datetime(texts, format="ISO8601", utc=True in aware)
            # Of no moment at all, pandas 3 makes seconds.
            return pd.Series(moments.as_unit("us") if moments.unit == "s" else moments)
    except ValueError:  # out of pandas' bounds, or no day of the calendar
        pass
    moments = [pd.NaT if text == NO_TIME else parse(text) for text in texts]
    aware = {moment.tzinfo is not None for moment in moments if moment is not pd.NaT}
    if len(aware) > 1:
        raise InvalidInput("some datetimes have an offset, and some do not", subject="data")
    try:
        return pd.Series(pd.to_datetime(moments, utc=True in aware))
    except pd.errors.OutOfBoundsDatetime:
        return pd.Series(object_array(moments), dtype=object)


def decode_frame(tensors: list[Any]) -> pd.DataFrame:
    import pandas as pd

    columns = {tensor.name: decode_column(tensor) for tensor in tensors}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        each = ", ".join(f'"{tensor.name}" {shape_text(tensor.shape)}' for tensor in tensors)
        raise InvalidInput("the columns have different numbers of rows", subject="shape", got=each)
    return pd.DataFrame(columns, index=pd.RangeIndex(*lengths) if lengths else None, copy=False)


def encode_frame(frame: pd.DataFrame, make: Any) -> list[Any]:
    """A tensor [N,1] a column, made by `make`. The index stays behind."""
    tensors = []
    for name, series in frame.items():
        if not isinstance(name, str):
            raise InvalidInput(subject="name of a column", expected="a string", got=name)
        try:
            datatype, array, codec = encode_column(series)
        except InferenceError as error:
            raise error.about("column", name) from None
        tensors.append(make(name, datatype, data=batch(array), parameters={"content_type": codec} if codec else None))
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise InvalidInput("two columns have the same name")
    return tensors


@register_request_codec
class PandasCodec(RequestCodec):
    """A DataFrame, a column a tensor."""

    ContentType = "pd"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_frame(payload)

    @classmethod
    def encode_request(cls, payload: pd.DataFrame, **options: Any) -> InferenceRequest:
        return InferenceRequest(encode_frame(payload, RequestInput), parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> pd.DataFrame:
        return decode_frame(request.inputs)

    @classmethod
    def encode_response(
        cls, model_name: str, payload: pd.DataFrame, model_version: str | None = None, **options: Any
    ) -> InferenceResponse:
        outputs = encode_frame(payload, ResponseOutput)
        return InferenceResponse(outputs, model_name, model_version, parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> pd.DataFrame:
        return decode_frame(response.outputs)


# These two ask without importing pandas, for those whose models have none.
def is_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"


def is_frame(value: Any) -> bool:
    return is_pandas(value) and type(value).__name__ == "DataFrame"


def is_column(value: Any) -> bool:
    """Whether `value` is a Series, an Index or one of pandas' arrays."""
    return is_pandas(value) and hasattr(value, "dtype")
