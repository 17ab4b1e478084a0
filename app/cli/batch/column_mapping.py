"""Conversion of columns of a file to inputs of the model, and of outputs to columns."""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.cli.batch.files import CONTENTS
from app.cli.common import Failure
from app.codecs import Base64Codec, BytesCodec, DatetimeCodec
from app.codecs.frames import NO_TIME, decode_datetimes
from app.codecs.strings import text_list
from app.inference.example import apply_declarations
from app.protocol.datatypes import bytes_array, datatype_of, object_array
from app.protocol.errors import InferenceError, InvalidInput, shorten
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput, ResponseOutput

# Texts that represent a missing number.
MISSING = pa.array(["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"])
# Number of rows that are examined to detect numbers in a text column.
EXAMINED_ROWS = 100
# Maximum length of column names in a message.
MAX_NAMES_LENGTH = 300


class ColumnMapping:
    """The columns of each input, and the columns that no input uses (`unused`).

    `chosen` are the names in --columns, if any. Raise Failure if one of them does not exist, or if
    a required input has no columns.
    """

    def __init__(self, head: pa.Table, model: ModelMetadata, chosen: Sequence[str]):
        candidates = _find_candidates(head, chosen)
        self._columns = _assign_columns(head, model.inputs, candidates, chosen)
        for tensor in model.required_inputs:
            if tensor.name not in self._columns:
                raise Failure(
                    f'Input "{tensor.name}": no column. The file has {_join(candidates)}. '
                    "Select with --columns."
                )

        self._inputs = [tensor for tensor in model.inputs if tensor.name in self._columns]
        used = set(chain.from_iterable(self._columns.values()))
        self.unused = [name for name in head.column_names if name not in used]

    def request(self, table: pa.Table) -> InferenceRequest:
        """Return the request for these rows.

        Raise InvalidInput if a value does not match the input.
        """
        inputs = []
        for tensor in self._inputs:
            columns = table.select(self._columns[tensor.name])
            try:
                array = _to_array(columns, tensor)
                inputs.append(RequestInput(tensor.name, tensor.datatype, data=array))
            except InferenceError as error:
                raise error.about("input", tensor.name) from None
        apply_declarations(inputs, self._inputs)
        return InferenceRequest(inputs)


# Columns of the inputs


def _find_candidates(head: pa.Table, chosen: Sequence[str]) -> list[str]:
    """Return the columns that inputs can use. Raise Failure if a chosen one does not exist."""
    for name in chosen:
        if name not in head.column_names:
            names = _join(head.column_names)
            raise Failure(f'--columns: no column "{name}". The file has {names}.')
    if chosen:
        return list(chosen)
    if CONTENTS in head.column_names:
        return [CONTENTS]
    return list(head.column_names)


def _assign_columns(
    head: pa.Table,
    inputs: Sequence[MetadataTensor],
    candidates: list[str],
    chosen: Sequence[str],
) -> dict[str, list[str]]:
    """Return the columns of each input, without inputs that have none.

    The first of these rules that applies determines the columns of all inputs:

    1. By name, if the names of columns match at least one input.
    2. If the model has one input, it has all columns or all numeric columns. Raise Failure if
       neither number equals the number of values per row.
    3. In the order of --columns, if it has one column for each input.
    """
    columns = {}
    for tensor in inputs:
        names = _columns_by_name(tensor, candidates)
        if names:
            columns[tensor.name] = names
    if columns:
        return columns

    if len(inputs) == 1:
        only_input = inputs[0]
        return {only_input.name: _columns_of_only_input(head, only_input, candidates)}

    if len(chosen) == len(inputs):
        for tensor, name in zip(inputs, chosen, strict=True):
            columns[tensor.name] = [name]
    return columns


def _columns_by_name(tensor: MetadataTensor, candidates: Sequence[str]) -> list[str]:
    """Return the column with the input's name, or the columns NAME_0, NAME_1 and so on.

    Return no columns if neither exist, or if they are not as many as values per row.
    """
    if tensor.name in candidates:
        return [tensor.name]
    pattern = re.compile(re.escape(tensor.name) + r"_\d+")
    numbered = [name for name in candidates if pattern.fullmatch(name)]
    width = _width(tensor) or len(numbered)
    expected = [f"{tensor.name}_{index}" for index in range(width)]
    if sorted(numbered) != sorted(expected):
        return []
    return expected


def _columns_of_only_input(
    head: pa.Table, tensor: MetadataTensor, candidates: list[str]
) -> list[str]:
    """Return all columns or all numeric columns, whichever number equals the input's number of
    values per row. Raise Failure if neither does.
    """
    if len(candidates) == 1 and _is_list(head[candidates[0]].type):
        return candidates

    numeric = []
    if tensor.datatype != "BYTES":
        numeric = [name for name in candidates if _has_numbers(head[name])]
    width = _width(tensor)
    for columns in (candidates, numeric):
        if columns and width in (None, len(columns)):
            return columns
    got = f"{len(numeric)} with numbers in {_join(candidates)}"
    raise Failure(
        f'Input "{tensor.name}": expected {width} columns, got {got}. Select with --columns.'
    )


def _has_numbers(column: pa.ChunkedArray) -> bool:
    first_rows = column.slice(0, EXAMINED_ROWS).combine_chunks()
    try:
        _convert_column(first_rows, MetadataTensor("", "FP64", [-1]))
    except InvalidInput:
        return False
    return True


def _width(tensor: MetadataTensor) -> int | None:
    """Return the number of values per row, or None if it is variable."""
    row_shape = tensor.shape[1:]
    return None if -1 in row_shape else math.prod(row_shape)


def _join(names: Iterable[str]) -> str:
    return shorten(", ".join(names), MAX_NAMES_LENGTH)


# Values of the inputs


def _to_array(columns: pa.Table, tensor: MetadataTensor) -> np.ndarray:
    """Return the values of an input from its columns, which are the elements of a row."""
    arrays = [_convert_column(column.combine_chunks(), tensor) for column in columns.columns]
    array = arrays[0]
    if len(arrays) > 1:
        array = np.stack(arrays, axis=1)

    rows = len(columns)
    width = _width(tensor)
    if width is None or array.size != rows * width:
        return array  # the service checks the shape
    return array.reshape(rows, *tensor.shape[1:])


def _convert_column(column: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Return a column as an array for an input. A column of lists has several dimensions.

    Raise InvalidInput if its datatype cannot represent a value exactly.
    """
    values, shape = _flatten_lists(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        if tensor.datatype == "BYTES":
            array = _to_texts(values, tensor)
        else:
            array = _to_numbers(values, tensor)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput("invalid value", expected=tensor.datatype, got=str(error)) from None
    return array.reshape(shape)


def _flatten_lists(column: pa.Array) -> tuple[pa.Array, list[int]]:
    """Return the values in the nested lists of a column, and the shape of the column.

    The shape of a column without lists is [rows]. Raise InvalidInput if lists of the same level
    have different lengths.
    """
    values = column
    shape = [len(column)]
    while _is_list(values.type):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) > 1 or None in lengths:
            raise InvalidInput("lists of different lengths", remedy="use --batch-size 1")
        shape.append(lengths[0] if lengths else 0)
        values = values.flatten()
    return values, shape


def _is_list(column_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(column_type)
        or types.is_large_list(column_type)
        or types.is_fixed_size_list(column_type)
    )


def _is_text(values: pa.Array) -> bool:
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _to_numbers(values: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Convert numbers, or text with numbers, to the datatype of the tensor."""
    datatype = datatype_of(tensor.datatype)
    if datatype.is_float:
        return _to_floats(values)

    if datatype.is_boolean and not pa.types.is_boolean(values.type):
        # The text form accepts only 0 and 1 as booleans.
        values = values.cast(pa.string())
    if _is_text(values):
        values = pc.utf8_trim_whitespace(values)
    numbers = values.cast(pa.from_numpy_dtype(datatype.dtype))
    if numbers.null_count:
        raise InvalidInput("missing value", expected=tensor.datatype)
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def _to_floats(values: pa.Array) -> np.ndarray:
    """Convert numbers, or text with numbers, to FP64 with rounding. A missing value is NaN."""
    is_text = _is_text(values)
    if is_text:
        values = pc.utf8_trim_whitespace(values)
        is_missing = pc.is_in(values, MISSING)
        values = pc.if_else(is_missing, None, values)
    numbers = values.cast(pa.float64(), safe=False)
    if is_text:
        # "inf" is a number, but the infinity of "1e999" is an error.
        has_digits = pc.match_substring_regex(values, "[0-9]")
        overflows = pc.and_(pc.is_inf(numbers), has_digits)
        if pc.any(overflows).as_py():
            raise InvalidInput("value out of range", expected="FP64")
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def _to_texts(values: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Return text, bytes or datetimes (as ISO 8601) in the format of the content type."""
    missing_time = NO_TIME if tensor.missing is None else tensor.missing
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        _, array = DatetimeCodec.encode(values.to_pylist(), missing=missing_time)
        return array.reshape(-1)

    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        contents = values.to_pylist()
        if tensor.content_type != Base64Codec.ContentType:
            return object_array(contents)
        _, array = Base64Codec.encode(contents)
        return array.reshape(-1)

    texts = values.cast(pa.string()).to_pylist()
    if tensor.content_type == DatetimeCodec.ContentType:
        texts = [text or missing_time for text in texts]
    return object_array(texts)


# Columns of the outputs


def to_columns(outputs: Sequence[ResponseOutput], format_name: str) -> dict[str, pa.Array]:
    """Return the outputs as columns. Raise InvalidInput if the format cannot represent a value.

    Several values per row are a list in JSON Lines, and the columns NAME_0, NAME_1 and so on in
    other formats.
    """
    columns = {}
    for output in outputs:
        try:
            values = _output_values(output, format_name)
        except InvalidInput as error:
            raise error.about("output", output.name) from None

        row_shape = output.shape[1:]
        width = math.prod(row_shape)
        if format_name == "jsonl":
            for size in reversed(row_shape):
                values = pa.FixedSizeListArray.from_arrays(values, size)
            columns[output.name] = values
        elif width == 1:
            columns[output.name] = values
        else:
            for index in range(width):
                columns[f"{output.name}_{index}"] = values[index::width]
    return columns


def _output_values(output: ResponseOutput, format_name: str) -> pa.Array:
    """Return the elements of an output in the types of the format, in row-major order."""
    if format_name == "parquet":
        return _typed_values(output)
    if output.datatype == "BYTES":
        return _text_values(output)

    # NaN is a missing value in text formats.
    array = _number_array(output)
    values = pa.array(array, from_pandas=True)
    if format_name == "jsonl" and array.dtype.kind == "f":
        if np.isinf(array).any():
            raise InvalidInput("JSON cannot represent Infinity")
        # Write FP32 0.1 as 0.1, not as 0.10000000149011612.
        values = values.cast(pa.string()).cast(pa.float64())
    return values


def _typed_values(output: ResponseOutput) -> pa.Array:
    """Return the elements for Parquet, which has types for datetimes and bytes."""
    content_type = output.parameters.get("content_type")
    if content_type == DatetimeCodec.ContentType:
        return pa.array(decode_datetimes(output), from_pandas=True)
    if output.datatype != "BYTES":
        return pa.array(_number_array(output), from_pandas=False)
    if content_type in (None, BytesCodec.ContentType):
        array = output.wire_data(is_binary=True).ravel()
        return pa.array(bytes_array(array).tolist(), pa.binary())
    return _text_values(output)


def _text_values(output: ResponseOutput) -> pa.Array:
    array = output.wire_data(is_binary=False).ravel()
    return pa.array(text_list(array.tolist()), pa.string())


def _number_array(output: ResponseOutput) -> np.ndarray:
    """Return the numbers as a flat array. FP16 is converted, because few programs can read it."""
    array = output.wire_data(is_binary=False).ravel()
    return array.astype(np.float32) if output.datatype == "FP16" else array
