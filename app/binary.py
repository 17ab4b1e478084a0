"""Tensor bytes ↔ ndarray: the Binary Tensor Data Extension over REST, `raw_input_contents` over gRPC (B1)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.datatypes import Datatype, check_count, object_array, octets, reshape, shape_text, text_array
from app.errors import NO_BINARY_FORM, InvalidInput, shorten

Buffer = bytes | bytearray | memoryview
LENGTH = struct.Struct("<I")
# Below this a copy is quicker than a view.
SMALL = 2**12


def from_bytes(data: Buffer, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """The tensor of `shape` that `data` holds; it is copied, and so aligned and writable, and `data` can be let go.

    Raises InvalidInput unless the bytes are just those the shape needs (B5, G2).
    """
    if datatype.size is None:
        elements = split_elements(data)
        check_count(shape, len(elements))
        return reshape(object_array(elements), shape)
    expected = math.prod(shape) * datatype.size
    if len(data) != expected:
        raise InvalidInput(
            f"data: {datatype.name} {shape_text(shape)} takes {shorten(str(expected))} bytes, got {len(data)}"
        )
    array = np.frombuffer(data, datatype.dtype).copy()
    if datatype.kind == "b" and (values := array.view("u1")).size and values.max() > 1:
        raise InvalidInput(f"data: a BOOL is the byte 0 or 1, got {values.max()}")
    return reshape(array, shape)


def to_bytes(array: np.ndarray, datatype: Datatype) -> Buffer:
    """The elements of `array`, row-major; those of BYTES, each behind its length. Raises InvalidInput for a None."""
    if datatype.size is None:
        return join_elements(octets(array.ravel().tolist()))
    if array.nbytes < SMALL:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view("u1").data


def split_elements(data: Buffer) -> list[bytes]:
    """The elements of a BYTES tensor; InvalidInput where a length reaches beyond the end."""
    data, end, position = bytes(data), len(data), 0
    elements: list[bytes] = []
    start, length_at = 0, LENGTH.unpack_from
    try:
        while position < end:
            start = position + LENGTH.size
            position = start + length_at(data, position)[0]
            elements.append(data[start:position])
    except struct.error:
        raise InvalidInput(f"data: the bytes end within the length of element {len(elements)}") from None
    if position > end:
        length, count = position - start, len(elements)
        raise InvalidInput(f"data: element {count - 1} is {length} bytes long, got {end - start}")
    return elements


def join_elements(elements: list[bytes | None]) -> bytes:
    parts: list[Any] = [b""] * (2 * len(elements))
    try:
        parts[::2], parts[1::2] = map(LENGTH.pack, map(len, elements)), elements  # type: ignore[arg-type]
        return b"".join(parts)
    except TypeError:
        text_array(object_array(elements))  # which has the words for what is no text at all
        raise InvalidInput(f"data: {NO_BINARY_FORM}") from None
