"""Conversion of columns of a file to inputs of the model, and of outputs to columns."""

import math
import re
from collections.abc import Sequence

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
FEW_ROWS = 100  # number of rows that are examined to detect numbers in a text column


class ColumnMapping:
    """The columns of each input (`inputs`), and the columns that no input uses (`unused`).

    An input uses the column with its name, or the columns NAME_0, NAME_1 and so on. If no names match, the `chosen`
    columns are assigned to the inputs in order. If the model has one input, it uses all columns or all numeric columns,
    provided that their number equals the number of values per row. Raise Failure if a column is missing.
    """

    def __init__(self, head: pa.Table, model: ModelMetadata, chosen: Sequence[str]):
        candidates = list(chosen) or (
            [CONTENTS] if CONTENTS in head.column_names else head.column_names
        )
        if unknown := [name for name in candidates if name not in head.column_names]:
            raise Failure(
                f'--columns: no column "{unknown[0]}". The file has {_join(head.column_names)}.'
            )
        columns = {each.name: _columns_by_name(each, candidates) for each in model.inputs}
        if not any(columns.values()):
            if len(model.inputs) == 1:
                columns = {
                    model.inputs[0].name: _columns_of_only_input(head, model.inputs[0], candidates)
                }
            elif len(chosen) == len(model.inputs):
                columns = {
                    each.name: [column] for each, column in zip(model.inputs, chosen, strict=True)
                }
        if missing := [each.name for each in model.required_inputs if not columns[each.name]]:
            raise Failure(
                f'Input "{missing[0]}": no column. The file has {_join(candidates)}. Select with --columns.'
            )
        used = {column for found in columns.values() for column in found}
        self.inputs = [(each, columns[each.name]) for each in model.inputs if columns[each.name]]
        self.unused = [name for name in head.column_names if name not in used]

    def request(self, table: pa.Table) -> InferenceRequest:
        """Return the request for these rows. Raise InvalidInput if a value does not match the input."""
        inputs = []
        for tensor, columns in self.inputs:
            try:
                made = [to_input(table[column].combine_chunks(), tensor) for column in columns]
                array = made[0] if len(made) == 1 else np.stack(made, axis=1)
                if (width := _width(tensor)) is not None and array.size == len(table) * width:
                    array = array.reshape(len(table), *tensor.shape[1:])
                inputs.append(RequestInput(tensor.name, tensor.datatype, data=array))
            except InferenceError as error:
                raise error.about("input", tensor.name) from None
        apply_declarations(inputs, [tensor for tensor, _ in self.inputs])
        return InferenceRequest(inputs)


def _columns_by_name(tensor: MetadataTensor, candidates: Sequence[str]) -> list[str]:
    """Return the column with the input's name, or the columns NAME_0, NAME_1 and so on if all exist."""
    if tensor.name in candidates:
        return [tensor.name]
    numbered = re.compile(re.escape(tensor.name) + r"_\d+")
    found = [name for name in candidates if numbered.fullmatch(name)]
    expected = [f"{tensor.name}_{index}" for index in range(_width(tensor) or len(found))]
    return expected if sorted(expected) == sorted(found) else []


def _columns_of_only_input(
    head: pa.Table, tensor: MetadataTensor, candidates: list[str]
) -> list[str]:
    """Return all columns or all numeric columns, whichever number equals the input's number of values per row."""
    width = _width(tensor)
    numeric = [
        name for name in candidates if tensor.datatype != "BYTES" and _has_numbers(head[name])
    ]
    is_one_array = len(candidates) == 1 and is_list(head[candidates[0]].type)
    for found in (candidates, numeric):
        if found and (is_one_array or width in (None, len(found))):
            return found
    got = f"{len(numeric)} with numbers in {_join(candidates)}"
    raise Failure(
        f'Input "{tensor.name}": expected {width} columns, got {got}. Select with --columns.'
    )


def _has_numbers(column: pa.ChunkedArray) -> bool:
    try:
        to_input(column.slice(0, FEW_ROWS).combine_chunks(), MetadataTensor("", "FP64", [-1]))
    except InvalidInput:
        return False
    return True


def _width(tensor: MetadataTensor) -> int | None:
    """Return the number of values per row, or None if it is variable."""
    return None if -1 in tensor.shape[1:] else math.prod(tensor.shape[1:])


def _join(names: Sequence[str]) -> str:
    return shorten(", ".join(names), 300)


def is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def to_input(column: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Return a column as an array for an input. Raise InvalidInput if its datatype cannot represent a value exactly."""
    shape = [len(column)]
    while is_list(column.type):  # one list per row
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) > 1 or None in lengths:
            raise InvalidInput("lists of different lengths", remedy="use --batch-size 1")
        shape.append(lengths[0] if lengths else 0)
        column = column.flatten()
    values = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    try:
        array = (
            to_texts(values, tensor) if tensor.datatype == "BYTES" else to_numbers(values, tensor)
        )
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput("invalid value", expected=tensor.datatype, got=str(error)) from None
    return array.reshape(shape)


def to_numbers(values: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Convert numbers, or text with numbers, to the datatype of the tensor. A missing float is NaN."""
    datatype = datatype_of(tensor.datatype)
    is_float = datatype.is_float
    target = pa.float64() if is_float else pa.from_numpy_dtype(datatype.dtype)
    if datatype.is_boolean and not pa.types.is_boolean(values.type):
        values = values.cast(pa.string())  # the text form accepts only 0 and 1 as booleans
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if is_text:
        values = pc.utf8_trim_whitespace(values)
        values = pc.if_else(pc.is_in(values, MISSING), None, values) if is_float else values
    numbers = values.cast(
        target, safe=not is_float
    )  # floats can be rounded, integers must be exact
    if is_float and is_text:
        overflows = pc.and_(pc.is_inf(numbers), pc.match_substring_regex(values, "[0-9]"))
        if pc.any(overflows).as_py():
            raise InvalidInput("value out of range", expected="FP64")
    if numbers.null_count and not is_float:
        raise InvalidInput("missing value", expected=tensor.datatype)
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def to_texts(values: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Return text, bytes or datetimes (as ISO 8601) in the format of the content type."""
    is_moment = tensor.content_type == DatetimeCodec.ContentType
    missing = NO_TIME if tensor.missing is None else tensor.missing
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return DatetimeCodec.encode(values.to_pylist(), missing=missing)[1].reshape(-1)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        elements = values.to_pylist()
        if tensor.content_type == Base64Codec.ContentType:
            return Base64Codec.encode(elements)[1].reshape(-1)
        return object_array(elements)
    elements = values.cast(pa.string()).to_pylist()
    return object_array([each or missing for each in elements] if is_moment else elements)


def to_columns(outputs: Sequence[ResponseOutput], format_name: str) -> dict[str, pa.Array]:
    """Return the outputs as columns. Raise InvalidInput if the format cannot represent a value.

    Several values per row are a list in JSON Lines, and the columns NAME_0, NAME_1 and so on in other formats.
    """
    columns = {}
    for output in outputs:
        try:
            values = _values(output, format_name)
        except InvalidInput as error:
            raise error.about("output", output.name) from None
        width = math.prod(output.shape[1:])
        if format_name == "jsonl":
            for size in reversed(output.shape[1:]):
                values = pa.FixedSizeListArray.from_arrays(values, size)
        if format_name == "jsonl" or width == 1:
            columns[output.name] = values
        else:
            columns |= {f"{output.name}_{index}": values[index::width] for index in range(width)}
    return columns


def _values(output: ResponseOutput, format_name: str) -> pa.Array:
    """Return the values as text or numbers. Parquet keeps types: BYTES with content type `bytes` or none are binary."""
    array, content_type = (
        output.wire_data(is_binary=False).ravel(),
        output.parameters.get("content_type"),
    )
    is_parquet = format_name == "parquet"
    if is_parquet and content_type == DatetimeCodec.ContentType:
        return pa.array(decode_datetimes(output), from_pandas=True)
    if is_parquet and output.datatype == "BYTES" and content_type in (None, BytesCodec.ContentType):
        return pa.array(bytes_array(output.wire_data(is_binary=True).ravel()).tolist(), pa.binary())
    if output.datatype == "BYTES":
        return pa.array(text_list(array.tolist()), pa.string())
    array = array.astype(np.float32) if output.datatype == "FP16" else array
    values = pa.array(array, from_pandas=not is_parquet)  # NaN is a missing value in text formats
    if format_name == "jsonl" and array.dtype.kind == "f":
        if np.isinf(array).any():
            raise InvalidInput("JSON cannot represent Infinity")
        values = values.cast(pa.string()).cast(
            pa.float64()
        )  # write FP32 0.1 as 0.1, not as 0.10000000149011612
    return values
