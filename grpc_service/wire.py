"""Raw tensors without the copies of protobuf: two per request and two per response.

A message is a sequence of fields in any order. Each starts with a tag that contains its number and wire type. A bytes
field can therefore be removed or appended without parsing the other fields.
"""

from functools import lru_cache

from app.protocol.binary_tensors import Buffer
from app.protocol.errors import InvalidInput

# For smaller messages (in bytes), protobuf is faster.
LARGE = 2**15
# More than a request with MAX_TENSORS needs. A field of two bytes uses far more memory when it is parsed.
MAX_FIELDS = 2**18
VARINT, EIGHT, DELIMITED, FOUR = 0, 1, 2, 5
FIXED = {EIGHT: 8, FOUR: 4}


def extract_large_field(body: bytes, number: int) -> tuple[bytes, list[memoryview]]:
    """Return the message without the field `number`, and the values of that field as views of `body`.

    Return `body` unchanged if it is small, malformed or without the field. Raise InvalidInput for too many fields.
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
                raise InvalidInput(
                    "too many fields in the message", expected=f"at most {MAX_FIELDS}"
                )
    except (IndexError, KeyError):
        return body, []
    return (b"".join(kept), taken) if taken and position == len(body) else (body, [])


def encode_field(number: int, *parts: Buffer) -> tuple[Buffer, ...]:
    """Return the parts of the field `number`: its head and its content."""
    return field_head(number, sum(map(len, parts))), *parts


@lru_cache(1024)
def field_head(number: int, size: int) -> bytes:
    """Return the tag and the length of a bytes field."""
    return encode_varint(number << 3 | DELIMITED) + encode_varint(size)


def read_varint(body: bytes, position: int, most: int = 5) -> tuple[int, int]:
    """Return the varint at `position` and the position after it. Raise IndexError if it is longer than `most` bytes.

    Tags and lengths have at most five bytes, values have at most ten.
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
    """Return a varint: seven bits per byte, with the highest bit set in all bytes except the last."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
