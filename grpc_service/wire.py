"""Bytes fields of large messages without protobuf's copies: two per request and two per response.

A serialized message is a sequence of fields. A field is a tag and a value. The tag contains the
field's number and the wire type, which tells where the value ends:

    tag = number << 3 | wire type

    wire type  value
    0          a varint of up to ten bytes: an integer or a boolean
    1          8 bytes: a double, for example
    2          a length, and as many bytes: text, bytes, a message or a packed list
    5          4 bytes: a float, for example

Tags, lengths and integers are varints: seven bits per byte, the lowest bits first. The highest bit
is set in all bytes except the last. 300 is `ac 02`. For example, the two fields of
ModelInferRequest(model_name="iris", raw_input_contents=[bytes([1, 2, 3])]) are:

    0a 04  69 72 69 73    tag 0a: number 1, wire type 2. The length is 4
    3a 03  01 02 03       tag 3a: number 7, wire type 2. The length is 3

Fields can be in any order. Only the values of the same repeated field must keep theirs. Therefore,
a field can be cut out of a message or appended to it, without a parser that knows the other fields:

- `extract_large_field` returns the values of field 7 as views of the body, here of `01 02 03`, and
  the rest of the message, `0a 04 69 72 69 73`, which protobuf parses.
- `encode_field` returns the head `3a 03` and the data as separate parts. They are joined once, with
  all parts of the message.

protobuf decides what is malformed: nothing is extracted from a message that this module cannot
read. Wire types 3 and 4, the start and the end of a group, are rejected. The specification is https://protobuf.dev/programming-guides/encoding.
"""

from contextlib import suppress
from functools import lru_cache

from app.protocol.binary_tensors import Buffer
from app.protocol.envelope import MAX_TENSORS
from app.protocol.errors import InvalidInput

# In bytes. Smaller messages are not scanned: protobuf is faster, and they need little memory.
MIN_SCANNED_SIZE = 2**15
# More than a request with MAX_TENSORS needs. When protobuf parses a field of two bytes, the result
# takes far more memory.
MAX_FIELDS = 2**18

# Wire types.
_VARINT = 0
_FIXED_64 = 1
_LENGTH_DELIMITED = 2
_START_GROUP = 3
_END_GROUP = 4
_FIXED_32 = 5
_WIRE_TYPE_BITS = 0b111
# The number of no field of a message.
_NO_FIELD = 0

# The longest varints that protobuf accepts.
_MAX_TAG_BYTES = 5
_MAX_LENGTH_BYTES = 5
_MAX_INTEGER_BYTES = 10


class _MalformedMessage(Exception):
    """The bytes are not a sequence of fields with the wire types above."""


class _TooManyValues(Exception):
    """The bytes field to extract has more values than a valid message."""


def check_fields(body: bytes) -> None:
    """Raise InvalidInput if a large message has more than MAX_FIELDS fields, or a group.

    Fields of fields do not count, because protobuf needs less memory for them.
    """
    if len(body) < MIN_SCANNED_SIZE:
        return
    with suppress(_MalformedMessage):
        _split_fields(body, _NO_FIELD)


def extract_large_field(body: bytes, number: int) -> tuple[bytes, list[memoryview]]:
    """Return the message without the bytes field `number`, and its values as views of `body`.

    Return `body` unchanged if it is small, malformed or without the field. Raise InvalidInput if it
    has more than MAX_FIELDS fields, or a group.
    """
    if len(body) < MIN_SCANNED_SIZE:
        return body, []
    try:
        other_fields, values = _split_fields(body, number)
    except _MalformedMessage:
        return body, []
    except _TooManyValues:  # protobuf needs less memory for them than their views
        check_fields(body)
        return body, []
    if not values:
        return body, []
    return b"".join(other_fields), values


def _split_fields(body: bytes, number: int) -> tuple[list[memoryview], list[memoryview]]:
    """Return the other fields with their tags, and the values of the bytes field `number`.

    Adjacent other fields are one view.
    """
    extracted_tag = _tag(number)
    view = memoryview(body)
    other_fields = []
    values = []

    fields = 0
    position = 0
    other_fields_start = 0
    while position < len(body):
        field_start = position
        tag, position = _read_varint(body, position, max_bytes=_MAX_TAG_BYTES)
        value_start, position = _find_value(body, position, wire_type=tag & _WIRE_TYPE_BITS)
        if tag == extracted_tag:
            values.append(view[value_start:position])
            if other_fields_start < field_start:
                other_fields.append(view[other_fields_start:field_start])
            other_fields_start = position

            if len(values) > MAX_TENSORS:
                raise _TooManyValues

        fields += 1
        if fields > MAX_FIELDS:
            raise InvalidInput("too many fields in the message", expected=f"at most {MAX_FIELDS}")

    if position > len(body):
        raise _MalformedMessage("the last field is incomplete")
    other_fields.append(view[other_fields_start:])
    return other_fields, values


def _find_value(body: bytes, position: int, wire_type: int) -> tuple[int, int]:
    """Return where the value starts, after its length if it has one, and where it ends.

    `position` is that after the tag. If the value is incomplete, its end is beyond that of `body`.
    """
    if wire_type == _LENGTH_DELIMITED:
        length, start = _read_varint(body, position, max_bytes=_MAX_LENGTH_BYTES)
        return start, start + length
    if wire_type == _VARINT:
        _, end = _read_varint(body, position, max_bytes=_MAX_INTEGER_BYTES)
        return position, end
    if wire_type == _FIXED_64:
        return position, position + 8
    if wire_type == _FIXED_32:
        return position, position + 4
    if wire_type in (_START_GROUP, _END_GROUP):
        # Groups are obsolete, and the protocol has none. Their fields would have to be counted.
        raise InvalidInput("groups in the message", expected="no groups")
    raise _MalformedMessage(f"wire type {wire_type}")


def _read_varint(body: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """Return the value of the varint at `position`, and the position after it."""
    value = 0
    shift = 0
    for octet in body[position : position + max_bytes]:
        position += 1
        value |= (octet & 0x7F) << shift
        if octet <= 0x7F:  # the last byte
            return value, position
        shift += 7
    raise _MalformedMessage("a varint is incomplete or too long")


def encode_field(number: int, *parts: Buffer) -> tuple[Buffer, ...]:
    """Return the bytes field `number` in parts: its tag and length, and the parts of its value."""
    return _field_head(number, sum(map(len, parts))), *parts


@lru_cache(1024)
def _field_head(number: int, length: int) -> bytes:
    """Return the tag and the length of a bytes field."""
    return _encode_varint(_tag(number)) + _encode_varint(length)


def _tag(number: int) -> int:
    """Return the tag of a bytes field."""
    return number << 3 | _LENGTH_DELIMITED


def _encode_varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
