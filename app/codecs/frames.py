"""`pd` and `pd_json`: DataFrames with one tensor per column (C6).

encode_column() selects the datatype and the content type by the dtype of the column:

| Column                                   | Datatype                 | Content type |
|------------------------------------------|--------------------------|--------------|
| numbers and booleans                     | by the dtype             | none         |
| numbers with missing values              | FP*, missing is NaN      | none         |
| booleans with missing values             | BYTES                    | `pd_json`    |
| integers above 2**53 with missing values | BYTES                    | `pd_json`    |
| datetimes and dates                      | BYTES                    | `datetime`   |
| bytes                                    | BYTES                    | none         |
| text                                     | BYTES                    | `str`        |
| text with missing values                 | BYTES                    | `pd_json`    |
| bytes with missing values                | rejected                 |              |
| other objects                            | BYTES                    | `pd_json`    |

Categorical and sparse columns are encoded like columns of their values, and columns with a number
dtype of another package like columns of their NumPy array. PandasCodec.decode() restores the values
of each column, as C6 requires.

The first DataFrame imports pandas, so that services without DataFrames start faster and do not need
it.
"""

from __future__ import annotations

import json
import re
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from app.codecs.arrays import NumpyCodec, datatype_name
from app.codecs.base import (
    RequestCodec,
    decode_tensor,
    register_input_codec,
    register_request_codec,
    to_tensor_shape,
)
from app.codecs.datetimes import DatetimeCodec, parse_datetime
from app.codecs.strings import StringCodec, TextCodec, as_list, text_tensor
from app.protocol.datatypes import INTEGER_KINDS, SCALARS, bytes_array, format_shape, object_array
from app.protocol.errors import InferenceError, InvalidInput, shorten
from app.protocol.tensors import Tensor

if TYPE_CHECKING:
    import pandas as pd
    from pandas.api.extensions import ExtensionArray

# Floats represent all integers up to this value exactly.
_MAX_EXACT_INTEGER = 2**53
# NumPy's letters for the kinds of dtypes, which the dtypes of pandas have too, are explained in
# app/protocol/datatypes.py.
_NUMBER_KINDS = "biuf"
_DATETIME_KINDS = "mM"
_NULLABLE_DTYPES = {"i": "Int64", "u": "UInt64", "b": "boolean"}
# Text of a missing datetime in pandas and NumPy.
NO_TIME = "NaT"
# Datetimes that pandas parses like Python: at most nine decimal places for seconds, and no seconds
# in the offset.
MOMENT = re.compile(
    r"(?!0000)\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(?P<offset>Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)

_json_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@register_input_codec
class PandasJsonCodec(TextCodec):
    """Lists of values that are encoded as JSON text, such as lists, dicts and missing values."""

    ContentType = "pd_json"
    TypeHint = list

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        """Encode each element as JSON. Raise InvalidInput if JSON would change an element."""
        texts = []
        try:
            for element in as_list(payload):
                texts.append(_json_encoder.encode(_to_json_value(element)))
        except (ValueError, RecursionError) as error:
            raise InvalidInput("JSON cannot represent a value", got=str(error)) from None
        return text_tensor(texts, use_bytes)

    @classmethod
    def decode(cls, tensor: Tensor) -> list[Any]:
        """Parse each element. Raise InvalidInput for invalid JSON, which includes NaN, Infinity,
        floats that overflow, and halves of surrogate pairs.
        """
        texts: list[Any] = cls.texts(tensor)
        values = []
        try:
            for text in texts:
                if text is None:
                    raise TypeError("null is not text")
                values.append(_json_decoder.decode(text))
            for value, text in zip(values, texts, strict=True):
                if r"\u" in text:
                    _check_unicode(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidInput("invalid JSON", got=str(error)) from None
        return values


def _finite_float(text: str) -> float:
    """Parse a number. Raise ValueError if it overflows, or for `NaN`, `Infinity` and `-Infinity`,
    which Python's JSON parser accepts.
    """
    number = float(text)
    if not np.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


# json.loads() would create a decoder for each element.
_json_decoder = json.JSONDecoder(parse_constant=_finite_float, parse_float=_finite_float)


def _check_unicode(value: Any) -> None:
    r"""Raise ValueError if parsed JSON contains half of a surrogate pair, such as \ud800."""
    json.dumps(value, ensure_ascii=False).encode()


def _to_json_value(value: Any) -> Any:
    """Convert `value` to the types of JSON.

    Raise InvalidInput for values that JSON would change, such as NaN or keys that are not str.
    """
    is_numpy = isinstance(value, np.ndarray | np.generic)
    if is_numpy and value.dtype.kind not in _DATETIME_KINDS:
        value = value.tolist()

    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_to_json_value(element) for element in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _to_json_value(element) for key, element in value.items()}
    raise InvalidInput(f"JSON cannot represent {type(value).__name__}", got=shorten(repr(value)))


class EncodedColumn(NamedTuple):
    """A column as the parts of a tensor. The shape of `array` is [N]."""

    datatype: str
    array: np.ndarray
    content_type: str | None = None


def encode_column(series: pd.Series, allow_null: bool = False) -> EncodedColumn:
    """Encode a Series, an Index or a pandas array.

    Text with missing values is encoded as JSON, which all forms of a tensor can carry, and bytes
    with missing values are rejected. If `allow_null` is True, the elements stay text or bytes, and
    missing values are null, which only the JSON form can carry (R12). Raise InvalidInput if the
    encoding would change a value.
    """
    import pandas as pd

    if not isinstance(series, pd.Series):
        series = pd.Series(series)
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return encode_column(_convert_column(series, dtype.categories.dtype), allow_null)
    if isinstance(dtype, pd.SparseDtype):
        return encode_column(series.sparse.to_dense(), allow_null)
    if dtype.kind == "M":  # datetimes, with or without a time zone
        return encode_moments(column_values(series))
    is_object = dtype.kind == "O"
    if isinstance(dtype, np.dtype) and not is_object:
        return encode_array(series.to_numpy())
    if dtype.kind in _NUMBER_KINDS:
        if hasattr(dtype, "numpy_dtype"):
            return _encode_nullable(series)
        # A dtype of another package. Its `kind` does not contain the size of the numbers.
        numbers = series.dropna().to_numpy()
        return encode_column(_convert_column(series, numbers.dtype), allow_null)
    return _encode_objects(series, allow_null)


def _convert_column(series: pd.Series, dtype: Any) -> ExtensionArray | pd.Series:
    """Return the values of a column with another dtype, which can represent them.

    If values are missing, NumPy's integers and booleans become nullable.
    """
    import pandas as pd

    if not series.isna().any():
        return series.astype(dtype)
    if isinstance(dtype, np.dtype):
        dtype = _NULLABLE_DTYPES.get(dtype.kind, dtype)
    return pd.array(column_values(series), dtype=dtype)


def encode_array(array: np.ndarray) -> EncodedColumn:
    """Encode a NumPy array [N]. Raise InvalidInput if no datatype matches its dtype."""
    return EncodedColumn(datatype_name(array.dtype), array)


def encode_moments(moments: list[Any]) -> EncodedColumn:
    """Encode dates or datetimes. None is a missing value."""
    return _encode_elements(moments, DatetimeCodec, missing=NO_TIME)


def _encode_elements(elements: list[Any], codec: type[TextCodec], **options: Any) -> EncodedColumn:
    """Encode each element with `codec`. `options` are those of its encode()."""
    datatype, array = codec.encode(elements, **options)
    return EncodedColumn(datatype, array.reshape(-1), codec.ContentType)


def _encode_nullable(series: pd.Series) -> EncodedColumn:
    """Encode numbers or booleans of a nullable dtype of pandas, including those of pyarrow.

    Missing values are NaN if floats represent the other values exactly. Otherwise, the column is
    encoded as JSON.
    """
    dtype = series.dtype
    if not series.isna().any():
        return encode_array(series.to_numpy(dtype.numpy_dtype))

    if dtype.kind == "f":
        return encode_array(series.to_numpy(dtype.numpy_dtype, na_value=np.nan))
    if dtype.kind in INTEGER_KINDS:
        largest = max(map(abs, series.dropna().tolist()), default=0)
        if largest <= _MAX_EXACT_INTEGER:
            return encode_array(series.to_numpy(np.float64, na_value=np.nan))
    return _encode_elements(column_values(series), PandasJsonCodec)


def _encode_objects(series: pd.Series, allow_null: bool) -> EncodedColumn:
    """Encode Python objects according to their types."""
    values = column_values(series)
    types = set()
    for value_type in set(map(type, values)):
        types.add(SCALARS.get(value_type, value_type))  # np.str_ counts as str
    has_null = type(None) in types
    types.discard(type(None))

    is_text_possible = allow_null or not has_null
    if types == {bytes} and is_text_possible:
        return EncodedColumn("BYTES", bytes_array(object_array(values)))
    if types <= {str} and is_text_possible:
        return _encode_elements(values, StringCodec)
    if types and all(issubclass(value_type, date) for value_type in types):
        return encode_moments(values)
    return _encode_elements(values, PandasJsonCodec)


def column_values(series: Any) -> list[Any]:
    """Return the elements of a column. NaN, NA and NaT become None."""
    values = []
    for value, is_missing in zip(series.astype(object), series.isna(), strict=True):
        values.append(None if is_missing else value)
    return values


def _decode_column(tensor: Tensor) -> pd.Series | ExtensionArray | np.ndarray:
    """Decode a tensor of one or more dimensions to a column with shape[0] rows.

    Its dtype depends on the datatype and, for BYTES, on the content type. If a row has several
    elements, the cell is an array of them.
    """
    array = tensor.data
    if array.ndim == 0:
        error = InvalidInput(subject="shape", expected="one or more dimensions", got="[]")
        raise error.about(tensor.kind, tensor.name)
    rows = len(array)
    content_type = tensor.parameters.get("content_type")

    values: Any
    if content_type == DatetimeCodec.ContentType:
        values = _decode_datetime_column(tensor)
        if len(values) == rows:
            return values
        values = list(values)
    else:
        values = decode_tensor(tensor, NumpyCodec)

    if isinstance(values, list):
        # A list has one value per element of the tensor. A row may have several elements.
        has_all_elements = len(values) == array.size
        if has_all_elements and len(values) != rows:
            return _array_to_column(object_array(values).reshape(array.shape))
        return _list_to_column(values, content_type)
    if isinstance(values, np.ndarray):
        return _array_to_column(values)
    return _other_to_column(values, content_type)


def _list_to_column(values: list[Any], content_type: str | None) -> pd.Series | ExtensionArray:
    """Return the column of a list with one value per row."""
    import pandas as pd

    has_only_text = set(map(type, values)) <= {str, type(None)}
    if not has_only_text:
        # Without this dtype, pandas would convert some objects, such as integers.
        return pd.Series(object_array(values), dtype=object)
    return _other_to_column(values, content_type)


def _other_to_column(values: Any, content_type: str | None) -> pd.Series | ExtensionArray:
    """Return the column of texts, or of another value of a project's codec, such as a Series."""
    import pandas as pd

    if content_type == StringCodec.ContentType:
        return pd.array(values, dtype=_text_dtype())
    return pd.Series(values)


def _array_to_column(array: np.ndarray) -> pd.Series | np.ndarray:
    """Return the column of an array. If its rows are arrays, so are the cells of the column."""
    import pandas as pd

    if array.size != len(array):
        return pd.Series(object_array(list(array)), dtype=object)
    array = array.reshape(len(array))
    if array.dtype == object:
        return pd.Series(array, copy=False)
    return array  # a DataFrame stores it without a copy


@cache
def _text_dtype() -> Any:
    """Return the pandas dtype for text. Before pandas 3, this is object."""
    import pandas as pd

    return pd.Series([""]).dtype


def _decode_datetime_column(tensor: Tensor) -> pd.Series:
    """Call decode_datetimes(). Errors contain the name of the tensor."""
    try:
        return decode_datetimes(tensor)
    except InferenceError as error:
        raise error.about(tensor.kind, tensor.name) from None


def decode_datetimes(tensor: Tensor) -> pd.Series:
    """Decode a column of datetimes, in UTC if they have offsets. NaT is a missing value.

    Datetimes outside the range of pandas are Python objects. Raise InvalidInput as DatetimeCodec
    does, and if only some datetimes have an offset.
    """
    texts = []
    for text in DatetimeCodec.texts(tensor):
        texts.append(NO_TIME if text is None else text)

    series = _parse_with_pandas(texts)
    if series is None:
        series = _parse_with_python(texts)
    return series


def _parse_with_pandas(texts: list[str]) -> pd.Series | None:
    """Parse datetimes in the most common format, faster than _parse_with_python().

    Return None for texts that only _parse_with_python() can parse or reject.
    """
    import pandas as pd

    have_offsets = []
    for text in texts:
        if text == NO_TIME:
            continue
        match = MOMENT.fullmatch(text)
        if match is None:
            return None
        have_offsets.append(match["offset"] is not None)
    if any(have_offsets) and not all(have_offsets):
        return None

    try:
        moments = pd.to_datetime(texts, format="ISO8601", utc=any(have_offsets))
    except ValueError:  # outside the range of pandas, or not a calendar day
        return None
    if moments.unit == "s":  # that of an empty column in pandas 3
        moments = moments.as_unit("us")
    return pd.Series(moments)


def _parse_with_python(texts: list[str]) -> pd.Series:
    """Parse datetimes in any format of ISO 8601. Raise InvalidInput as decode_datetimes() does."""
    import pandas as pd

    moments: list[Any] = []
    have_offsets = []
    for text in texts:
        if text == NO_TIME:
            moments.append(pd.NaT)
            continue
        moment = parse_datetime(text)
        moments.append(moment)
        have_offsets.append(moment.tzinfo is not None)
    if any(have_offsets) and not all(have_offsets):
        raise InvalidInput(
            subject="data", expected="datetimes that all have an offset, or none", got="both"
        )

    try:
        return pd.Series(pd.to_datetime(moments, utc=any(have_offsets)))
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
    def encode(cls, payload: pd.DataFrame, tensor_class: Any, **options: Any) -> list[Any]:
        """Return one tensor [N,1] of `tensor_class` per column. Omit the index.

        Raise InvalidInput if a column cannot be encoded, or if its name is not unique or not a str.
        """
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

            parameters = {}
            if column.content_type is not None:
                parameters["content_type"] = column.content_type
            array = to_tensor_shape(column.array)
            tensors.append(tensor_class(name, column.datatype, data=array, parameters=parameters))

        if not payload.columns.is_unique:
            raise InvalidInput("Two columns have the same name.")
        return tensors

    @classmethod
    def decode(cls, tensors: list[Any]) -> pd.DataFrame:
        """Return a DataFrame. Raise InvalidInput if a tensor is invalid, or if the numbers of rows
        differ.
        """
        import pandas as pd

        columns = {tensor.name: _decode_column(tensor) for tensor in tensors}
        if not columns:
            return pd.DataFrame()

        lengths = set(map(len, columns.values()))
        if len(lengths) > 1:
            shapes = [f'"{tensor.name}" {format_shape(tensor.shape)}' for tensor in tensors]
            raise InvalidInput(
                "columns have different numbers of rows",
                expected="the same number",
                got=", ".join(shapes),
            )
        (rows,) = lengths
        # With this index, pandas does not compare the indexes of all columns.
        return pd.DataFrame(columns, index=pd.RangeIndex(rows), copy=False)


def is_pandas(value: Any) -> bool:
    """Return True if `value` has a class of pandas.

    Does not import pandas, which may not be installed.
    """
    package, _, _ = type(value).__module__.partition(".")
    return package == "pandas"


def is_frame(value: Any) -> bool:
    """Return True if `value` is a DataFrame."""
    return is_pandas(value) and type(value).__name__ == "DataFrame"


def is_column(value: Any) -> bool:
    """Return True if `value` is a Series, an Index or a pandas array."""
    return is_pandas(value) and hasattr(value, "dtype")
