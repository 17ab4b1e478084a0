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


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_text(column: pa.Array) -> bool:
    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def to_input(column: pa.Array, tensor: MetadataTensor) -> np.ndarray:
    """Return a column as an array for an input. Raise InvalidInput if a value has no exact form in its datatype."""
    shape = [len(column)]
    while is_list(column.type):  # a list is a row
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) > 1 or None in lengths:
            raise InvalidInput("lists of different lengths", remedy="use --batch-size 1")
        shape.append(lengths[0] if lengths else 0)
        column = column.flatten()
    values = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
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
            values = _values(output, format_name)
        except InvalidInput as error:
            error.remedy = error.remedy or "use --output-format parquet"
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
    """Return the values with their types for Parquet, otherwise as text or numbers. BYTES may be binary in Parquet."""
    array, content_type = output.data.ravel(), output.parameters.get("content_type")
    is_parquet = format_name == "parquet"
    if is_parquet and content_type == DatetimeCodec.ContentType:
        flat = ResponseOutput.of(output.name, output.datatype, array, output.parameters)
        return pa.array(decode_datetimes(flat), from_pandas=True)
    if is_parquet and output.datatype == "BYTES" and not content_type:
        return pa.array(bytes_array(array).tolist(), pa.binary())
    if output.datatype == "BYTES":
        return pa.array(text_list(array.tolist()), pa.string())
    array = array.astype(np.float32) if output.datatype == "FP16" else array
    values = pa.array(array, from_pandas=not is_parquet)  # NaN is missing in text
    if format_name == "jsonl" and array.dtype.kind == "f":
        if np.isinf(array).any():
            raise InvalidInput("JSON has no Infinity")
        values = values.cast(pa.string()).cast(pa.float64())  # FP32 0.1 is 0.1, and not 0.10000000149011612
    return values
