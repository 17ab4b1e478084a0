"""Raw tensors without protobuf, which copies each of them twice in a request and twice in a response.

A message consists of its fields, in any order. Each follows a tag with its number and kind. A field of bytes can be
taken out of a message, or appended to it, without a parser of the other fields.
"""

from __future__ import annotations

from functools import lru_cache

from app.protocol.binary_tensors import Buffer
from app.protocol.errors import InvalidInput

# Below this size in bytes, protobuf is faster.
LARGE = 2**15
# More than a request with the largest number of tensors has. Each field takes far more memory than its two bytes.
MAX_FIELDS = 2**18
VARINT, EIGHT, DELIMITED, FOUR = 0, 1, 2, 5
FIXED = {EIGHT: 8, FOUR: 4}


def extract_large_field(body: bytes, number: int) -> tuple[bytes, list[memoryview]]:
    """Return the message without its field `number`, and the entries of that field as views of `body`.

    Return the body itself if it is small, malformed or without the field. Raise InvalidInput for too many fields.
    """
    if len(body) < LARGE:
        return body, []
    view, position, kept, taken = memoryview(body), 0, [], []
    try:
        while position < len(body):
            start = position
            tag, position = read_varint(body, position)
            kind = tag & 7
            if kind == DELIMITED:
                length, begin = read_varint(body, position)
                position = begin + length
            elif kind == VARINT:
                _, position = read_varint(body, position, most=10)
            else:
                position += FIXED[kind]
            if tag == number << 3 | DELIMITED:
                taken.append(view[begin:position])
            else:
                kept.append(view[start:position])
            if len(kept) + len(taken) > MAX_FIELDS:
                raise InvalidInput("too many fields in the message", expected=f"at most {MAX_FIELDS}")
    except (IndexError, KeyError):
        return body, []
    return (b"".join(kept), taken) if taken and position == len(body) else (body, [])


def encode_field(number: int, *parts: Buffer) -> tuple[Buffer, ...]:
    """Return the field `number` in parts: its head and its content."""
    return field_head(number, sum(map(len, parts))), *parts


@lru_cache(1024)
def field_head(number: int, size: int) -> bytes:
    """Return tag and length of a field of bytes."""
    return encode_varint(number << 3 | DELIMITED) + encode_varint(size)


def read_varint(body: bytes, position: int, most: int = 5) -> tuple[int, int]:
    """Return the integer at `position` and the position after it. Raise IndexError if it has over `most` bytes.

    A byte has seven bits of the integer. Tags and lengths have at most five bytes, values ten.
    """
    value = 0
    for shift in range(0, 7 * most, 7):
        octet = body[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet <= 0x7F:
            return value, position
    raise IndexError(position)


def encode_varint(value: int) -> bytes:
    """Return protobuf's encoding of an integer: seven bits per byte, and the highest bit in all bytes but the last."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
