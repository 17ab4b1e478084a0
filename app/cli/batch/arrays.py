"""Convert columns to input tensors, and output tensors to columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.codecs import Base64Codec, DatetimeCodec
from app.codecs.frames import decode_datetimes, encode_column
from app.codecs.strings import text_list
from app.datatypes import bytes_array, datatype_of, object_array
from app.errors import InvalidInput
from app.types import MetadataTensor, ResponseOutput

# The text of a missing number.
MISSING = pa.array(["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"])


def flatten(column: pa.Array) -> tuple[pa.Array, list[int]]:
    """Return the values of a column, and their shape. A list is a row. Raise InvalidInput if lengths differ."""
    shape = [len(column)]
    while not is_scalar(column):
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) > 1 or None in lengths:
            raise InvalidInput("lists of different lengths", remedy="use --batch-size 1")
        shape.append(lengths[0] if lengths else 0)
        column = column.flatten()
    return column, shape


def is_scalar(column: pa.Array) -> bool:
    """Return whether the values are not lists."""
    kinds = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    return not any(is_kind(column.type) for is_kind in kinds)


def is_text(column: pa.Array) -> bool:
    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def to_input(column: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Return a column as an array for an input. Raise InvalidInput if a value has no exact form in its datatype."""
    values, shape = flatten(column)
    try:
        array = to_texts(values, tensor.content_type) if tensor.datatype == "BYTES" else to_numbers(values, tensor)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput(f"not {tensor.datatype}", got=str(error)) from None
    return array.reshape(shape)


def to_numbers(values: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Return numbers, or text that represents them, in the datatype of the tensor. A missing float is NaN."""
    datatype = datatype_of(tensor.datatype)
    is_float = datatype.kind == "f"
    target = pa.float64() if is_float else pa.from_numpy_dtype(datatype.dtype)
    if datatype.kind == "b" and not is_text(values) and not pa.types.is_boolean(values.type):
        values = values.cast(pa.int64()).cast(pa.string())  # as text, only 0 and 1 are booleans
    if is_text(values):
        texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
        if is_float:
            texts = pc.if_else(pc.is_in(texts, MISSING), pa.scalar(None, pa.string()), texts)
        numbers = texts.cast(target)
        if is_float and pc.any(pc.and_(pc.is_inf(numbers), pc.match_substring_regex(texts, "[0-9]"))).as_py():
            raise InvalidInput("a number that FP64 cannot represent")
    else:
        numbers = values.cast(target, safe=not is_float)  # a float is rounded, an integer must be exact
    if numbers.null_count and not is_float:
        raise InvalidInput("missing value", expected=tensor.datatype)
    return numbers.to_numpy(zero_copy_only=False)


def to_texts(values: pa.Array, content_type: str | None) -> np.ndarray:
    """Return text, bytes, or moments as ISO 8601, in the form of the content type."""
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return encode_column(values.to_pandas())[1].reshape(-1)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        elements = values.to_pylist()
        if content_type == Base64Codec.ContentType:
            return Base64Codec.encode(elements)[1].reshape(-1)
        return object_array(elements)
    elements = values.cast(pa.string()).to_pylist()
    return object_array([each or "NaT" for each in elements] if content_type == DatetimeCodec.ContentType else elements)


def to_columns(outputs: Sequence[ResponseOutput], format_name: str) -> dict[str, pa.Array]:
    """Return the outputs as columns. Raise InvalidInput if the format has no form for a value.

    Several values in a row are a list in JSON Lines, and the columns NAME_0, NAME_1 and so on in other formats.
    """
    columns = {}
    for output in outputs:
        try:
            values = _parquet_values(output) if format_name == "parquet" else _text_values(output, format_name)
        except InvalidInput as error:
            raise error.about("output", output.name) from None
        width = math.prod(output.shape[1:])
        if format_name == "jsonl":
            for size in reversed(output.shape[1:]):
                values = pa.FixedSizeListArray.from_arrays(values, size)
            columns[output.name] = values
        elif width == 1:
            columns[output.name] = values
        else:
            columns |= {f"{output.name}_{index}": values[index::width] for index in range(width)}
    return columns


def _parquet_values(output: ResponseOutput) -> pa.Array:
    """Return the values with their types. BYTES without a content type are binary."""
    array, content_type = output.data.ravel(), output.parameters.get("content_type")
    if content_type == DatetimeCodec.ContentType:
        flat = ResponseOutput.of(output.name, output.datatype, array, output.parameters)
        return pa.array(decode_datetimes(flat), from_pandas=True)
    if output.datatype == "BYTES" and not content_type:
        return pa.array(bytes_array(array).tolist(), pa.binary())
    return pa.array(text_list(array.tolist()), pa.string()) if output.datatype == "BYTES" else pa.array(array)


def _text_values(output: ResponseOutput, format_name: str) -> pa.Array:
    """Return the values as text or numbers. NaN is missing."""
    array = output.data.ravel()
    if output.datatype == "BYTES":
        try:
            return pa.array(text_list(array.tolist()), pa.string())
        except InvalidInput as error:
            error.remedy = 'use --output-format parquet, or content_type="base64" in METADATA'
            raise
    values = pa.array(array.astype(np.float32) if array.dtype == np.float16 else array, from_pandas=True)
    if format_name == "jsonl" and pa.types.is_floating(values.type):
        if np.isinf(array).any():
            raise InvalidInput("JSON has no Infinity", remedy="use --output-format csv or parquet")
        values = values.cast(pa.string()).cast(pa.float64())  # FP32 0.1 is 0.1, and not 0.10000000149011612
    return values
