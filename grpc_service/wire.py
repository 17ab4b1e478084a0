"""Raw tensors past protobuf, which copies each of them twice on the way in and twice on the way out.

A message on the wire is its fields one behind another, in any order, each behind a tag that has its number and kind; so
a field of bytes can be taken out of a message, or put behind it, without a parser of the rest.
"""

from __future__ import annotations

from app.binary import Buffer
from app.errors import InvalidInput

# Below this, protobuf is quicker.
LARGE = 2**15
# More than a request has with all the tensors that it may have: each takes far more memory than its two bytes.
FIELDS_AT_MOST = 2**18
VARINT, EIGHT, DELIMITED, FOUR = 0, 1, 2, 5
FIXED = {EIGHT: 8, FOUR: 4}
SINGLE = [bytes([value]) for value in range(0x80)]


def take_out(body: bytes, number: int) -> tuple[bytes, list[memoryview]]:
    """The message without its field `number`, and the entries of that field as views of `body`.

    A small message, one without the field, and bytes that are no message come back whole. Raises InvalidInput for more
    fields than any message needs.
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
            if len(kept) + len(taken) > FIELDS_AT_MOST:
                raise InvalidInput("the message has too many fields", expected=f"at most {FIELDS_AT_MOST}")
    except (IndexError, KeyError):
        return body, []
    return (b"".join(kept), taken) if taken and position == len(body) else (body, [])


def field(number: int, *parts: Buffer) -> tuple[Buffer, ...]:
    """The field `number` of a message, in parts: its tag, its length, and what it holds."""
    size = 0
    for part in parts:  # so few are sooner counted so
        size += len(part)
    return varint(number << 3 | DELIMITED), varint(size), *parts


def read_varint(body: bytes, position: int, most: int = 5) -> tuple[int, int]:
    """The integer at `position`, seven bits a byte and at `most` so many, and the position behind it.

    IndexError where there is none. Tags and lengths have five bytes at most, values ten.
    """
    value = 0
    for shift in range(0, 7 * most, 7):
        octet = body[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet <= 0x7F:
            return value, position
    raise IndexError("more bytes than an integer has")


def varint(value: int) -> bytes:
    """protobuf's encoding of an integer: seven bits a byte, the last byte without its highest bit."""
    if value <= 0x7F:
        return SINGLE[value]
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(octets + bytes([value]))
