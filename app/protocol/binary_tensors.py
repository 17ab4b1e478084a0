"""Binary form of tensors: the Binary Tensor Data Extension in REST, and `raw_input_contents` in
gRPC (B1).

Numbers are little-endian, in row-major order. A BF16 element is the upper half of a float32. A
BYTES element is its length as a 32-bit integer, followed by the bytes:

    ["a", "bc"]  →  01 00 00 00  61  02 00 00 00  62 63
"""

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
_LENGTH = struct.Struct("<I")
# Arrays below this size in bytes are copied, which is faster than making a view.
_MIN_VIEW_BYTES = 2**12
# Elements that are joined at a time. Each needs 80 bytes until they are joined.
_MAX_JOINED_ELEMENTS = 2**14


def from_bytes(data: Buffer, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """Decode `data` to an aligned and writable copy in `shape`.

    Raise InvalidInput if its size is wrong (B5, G2).
    """
    if datatype.size is None:
        elements = _split_elements(data)
        check_count(shape, len(elements))
        return reshape(object_array(elements), shape)

    expected = math.prod(shape) * datatype.size
    if len(data) != expected:
        tensor = f"{datatype.name} {format_shape(shape)}"
        raise InvalidInput(
            "wrong number of bytes",
            expected="the size that the shape requires",
            got=f"{len(data)} for {tensor} ({shorten(str(expected))} bytes)",
        )

    if datatype.is_bf16:
        upper_halves = np.frombuffer(data, "<u2")
        bits = np.left_shift(upper_halves, 16, dtype="<u4")
        return reshape(bits.view(datatype.dtype), shape)
    array = np.frombuffer(data, datatype.dtype).copy()
    if datatype.is_boolean:
        _check_booleans(array)
    return reshape(array, shape)


def _check_booleans(array: np.ndarray) -> None:
    """Raise InvalidInput for bytes other than 0 and 1, for which NumPy's behavior is undefined."""
    octets = array.view("u1")
    if octets.size and octets.max() > 1:
        raise InvalidInput(
            subject="data", expected="bytes with the value 0 or 1 for BOOL", got=str(octets.max())
        )


def to_bytes(array: np.ndarray, datatype: Datatype) -> Buffer:
    """Return the binary form of an array, which may be a view of it.

    Raise NoBinaryForm if BYTES contain None.
    """
    if datatype.is_text:
        return _join_elements(as_bytes(array.ravel().tolist()))
    if datatype.is_bf16:
        halves = np.ascontiguousarray(array).reshape(-1).view("<u2")
        array = halves[1::2]  # the upper ones
    if array.nbytes < _MIN_VIEW_BYTES:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view("u1").data


def _join_elements(elements: list[Any]) -> bytes:
    """Return the elements, each with its length before it.

    Raise NoBinaryForm or InvalidInput if one is not bytes.
    """
    try:
        if len(elements) <= _MAX_JOINED_ELEMENTS:
            return _join_with_lengths(elements)
        parts = []
        for start in range(0, len(elements), _MAX_JOINED_ELEMENTS):
            parts.append(_join_with_lengths(elements[start : start + _MAX_JOINED_ELEMENTS]))
        return b"".join(parts)
    except TypeError:
        text_array(object_array(elements))  # raises InvalidInput for elements of other types
        raise NoBinaryForm from None


def _join_with_lengths(elements: list[Any]) -> bytes:
    # Slices avoid a loop in Python: lengths have even indexes, elements odd ones.
    parts: list[Any] = [b""] * (2 * len(elements))
    parts[::2] = map(_LENGTH.pack, map(len, elements))
    parts[1::2] = elements
    return b"".join(parts)


def _split_elements(data: Buffer) -> list[bytes]:
    """Return the elements of a BYTES tensor. Raise InvalidInput if a length exceeds the data."""
    data = bytes(data)
    size = len(data)
    elements: list[bytes] = []
    position = 0
    unpack_from = _LENGTH.unpack_from
    try:
        while position < size:
            start = position + _LENGTH.size
            position = start + unpack_from(data, position)[0]
            elements.append(data[start:position])
    except struct.error:  # fewer than four bytes remain
        position = size + _LENGTH.size
    if position > size:
        raise InvalidInput(
            "data too short",
            expected=f"at least {position} bytes for its elements",
            got=str(size),
        )
    return elements
