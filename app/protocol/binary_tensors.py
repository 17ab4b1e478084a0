"""Binary encoding of tensors: the Binary Tensor Data Extension in REST and `raw_input_contents` in gRPC (B1)."""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.protocol.datatypes import (
    Datatype,
    as_bytes,
    check_count,
    format_shape,
    object_array,
    reshape,
    text_array,
)
from app.protocol.errors import InvalidInput, NoBinaryForm, shorten

Buffer = bytes | bytearray | memoryview
LENGTH = struct.Struct("<I")
SMALL = 2**12  # bytes. For smaller arrays, a copy is faster than a view


def from_bytes(data: Buffer, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """Decode `data` to an aligned and writable copy in `shape`. Raise InvalidInput if its size is wrong (B5, G2)."""
    if datatype.size is None:
        elements = split_elements(data)
        check_count(shape, len(elements))
        return reshape(object_array(elements), shape)
    expected = math.prod(shape) * datatype.size
    if len(data) != expected:
        got = f"{len(data)} for {datatype.name} {format_shape(shape)} ({shorten(str(expected))} bytes)"
        raise InvalidInput(
            "wrong number of bytes", expected="the size that the shape requires", got=got
        )
    if datatype.is_bf16:
        return reshape(
            np.left_shift(np.frombuffer(data, "<u2"), 16, dtype="<u4").view(datatype.dtype), shape
        )
    array = np.frombuffer(data, datatype.dtype).copy()
    if datatype.kind == "b" and (values := array.view("u1")).size and values.max() > 1:
        raise InvalidInput(
            subject="data", expected="bytes with the value 0 or 1 for BOOL", got=str(values.max())
        )
    return reshape(array, shape)


def to_bytes(array: np.ndarray, datatype: Datatype) -> Buffer:
    """Return the elements in row-major order. BYTES elements have a length prefix. Raise NoBinaryForm for None."""
    if datatype.is_bf16:
        array = (np.ascontiguousarray(array).view("<u4") >> 16).astype("<u2")
    if datatype.size is not None:
        return (
            array.tobytes()
            if array.nbytes < SMALL
            else np.ascontiguousarray(array).reshape(-1).view("u1").data
        )
    elements = as_bytes(array.ravel().tolist())
    parts: list[Any] = [b""] * (2 * len(elements))
    try:
        parts[::2], parts[1::2] = map(LENGTH.pack, map(len, elements)), elements  # type: ignore[arg-type]
        return b"".join(parts)
    except TypeError:
        text_array(object_array(elements))  # raises InvalidInput for elements of other types
        raise NoBinaryForm from None


def split_elements(data: Buffer) -> list[bytes]:
    """Return the elements of a BYTES tensor. Raise InvalidInput if a length exceeds the data."""
    data, end, position = bytes(data), len(data), 0
    elements: list[bytes] = []
    length_at = LENGTH.unpack_from
    try:
        while position < end:
            start = position + LENGTH.size
            position = start + length_at(data, position)[0]
            elements.append(data[start:position])
    except struct.error:
        position = end + LENGTH.size
    if position > end:
        raise InvalidInput(
            "data too short", expected=f"at least {position} bytes for its elements", got=str(end)
        )
    return elements
