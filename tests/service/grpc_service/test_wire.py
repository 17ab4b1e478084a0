"""The parser of raw entries in large messages: it agrees with protobuf."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from app.protocol.errors import InvalidInput
from grpc_service import converters
from grpc_service.messages import ModelInferRequest
from grpc_service.wire import MAX_FIELDS, MIN_SCANNED_SIZE, encode_field, extract_large_field
from oip_conformance.wires import message_of_size
from tests.kit.message_strategies import Messages
from tests.kit.strategies import Subject

SUBJECT = Subject(
    "test", [("a", "INT16", [2], [1, -2]), ("b", "BYTES", [2], [b"", b"two"])], ["a", "b"]
)
MESSAGES = Messages(SUBJECT)
RAW = 7
EMPTY_GROUP = b"\x7b\x7c"
GROUPS = InvalidInput("groups in the message", expected="no groups")
many = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def entries_of(*entries: bytes) -> bytes:
    return b"".join(part for entry in entries for part in encode_field(RAW, entry))


def by_protobuf(body: bytes) -> Any:
    try:
        message = ModelInferRequest.FromString(body)
    except DecodeError:
        return None
    raws = list(message.raw_input_contents)
    del message.raw_input_contents[:]
    return message, raws


def by_hand(body: bytes) -> Any:
    try:
        message, raws = converters.parse_request(body)
    except DecodeError:
        return None
    raws = [bytes(raw) for raw in raws]
    del message.raw_input_contents[:]
    return message, raws


def agrees_with_protobuf(body: bytes) -> bool:
    """Return True if the result is that of protobuf, or if the message is rejected for a group."""
    try:
        result = by_hand(body)
    except InvalidInput as error:
        return str(error) == str(GROUPS)
    return bool(result == by_protobuf(body))


@many
@given(call=MESSAGES.infer)
def test_messages_agree_with_protobuf(call: tuple[str, bytes]) -> None:
    """A valid, unusual or damaged message has the same fields as with protobuf, or fails with both."""
    body = call[1] + b"".join(encode_field(2047, bytes(MIN_SCANNED_SIZE)))
    assert agrees_with_protobuf(body)


@many
@given(body=st.binary(max_size=60), tail=st.binary(max_size=20))
def test_any_bytes_agree_with_protobuf(body: bytes, tail: bytes) -> None:
    """Any bytes before and after raw entries have the same result as with protobuf."""
    whole = body + entries_of(b"x" * MIN_SCANNED_SIZE, b"", b"y") + tail
    assert agrees_with_protobuf(whole)


@pytest.mark.parametrize(
    "length", [b"\x80" * 9 + b"\x00", b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x01", b"\x80"]
)
def test_malformed_lengths_agree_with_protobuf(length: bytes) -> None:
    """A length that has too many bytes, or exceeds the message, has the same result as with protobuf."""
    whole = entries_of(b"x" * MIN_SCANNED_SIZE) + b"\x3a" + length
    assert agrees_with_protobuf(whole)


@pytest.mark.parametrize(
    "body",
    [
        EMPTY_GROUP + b"\x2a\x00" * MIN_SCANNED_SIZE,
        b"\x2a\x00" * MIN_SCANNED_SIZE + EMPTY_GROUP,
        entries_of(b"x" * MIN_SCANNED_SIZE) + b"\x7c",
        EMPTY_GROUP * MIN_SCANNED_SIZE,
    ],
)
@pytest.mark.parametrize("without_copies", [True, False])
def test_rejects_groups(body: bytes, without_copies: bool) -> None:
    """R20: a group, which would hide the number of fields, is rejected in a large message."""
    with pytest.raises(InvalidInput) as error:
        converters.parse_request(body, without_copies)
    assert str(error.value) == str(GROUPS)


@pytest.mark.parametrize("without_copies", [True, False])
def test_limits_fields(without_copies: bool) -> None:
    """R20: the number of fields is limited, also if protobuf parses the whole message."""
    valid_body = b"\x08\x00" * MAX_FIELDS
    converters.parse_request(valid_body, without_copies)
    with pytest.raises(InvalidInput, match="Too many fields"):
        converters.parse_request(valid_body + b"\x08\x00", without_copies)


@pytest.mark.parametrize(
    "sizes",
    [
        [MIN_SCANNED_SIZE],
        [0, MIN_SCANNED_SIZE, 1],
        [MIN_SCANNED_SIZE, MIN_SCANNED_SIZE],
        [2**21],
    ],
)
def test_entries_are_views(sizes: list[int]) -> None:
    """Raw entries are extracted in order and without a copy."""
    entries = [bytes([index]) * size for index, size in enumerate(sizes)]
    request = ModelInferRequest(model_name="test", raw_input_contents=entries)
    body = request.SerializeToString()
    rest, values = extract_large_field(body, RAW)
    assert [bytes(value) for value in values] == entries
    assert all(value.obj is body for value in values)
    assert rest == ModelInferRequest(model_name="test").SerializeToString()
    assert ModelInferRequest.FromString(rest + entries_of(*entries)) == request


def test_small_messages_are_left_to_protobuf() -> None:
    """No raw entries are extracted from a small message."""
    request = ModelInferRequest(raw_input_contents=[b"abc"])
    small_body = request.SerializeToString()
    assert extract_large_field(small_body, RAW) == (small_body, [])

    large_body = message_of_size(request, MIN_SCANNED_SIZE)
    assert extract_large_field(large_body, RAW)[1] == [b"abc"]
