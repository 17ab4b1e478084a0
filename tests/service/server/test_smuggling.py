"""Malformed requests: the status code is that of the RFC, and the application sees no request that was not sent."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.kit.h11_requests import SeenRequest, parse_with_h11
from tests.kit.malformed_streams import STREAMS, Stream
from tests.kit.processes import Running
from tests.kit.reviewed_messages import check_messages
from tests.kit.standalone import Reply, exchange, read_replies, start

FOLLOWER = b"GET /follower HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
# A longer stream is not sent byte by byte, but in pieces of a prime number of bytes.
BYTEWISE_BYTES, PIECE_BYTES = 2**12, 997


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with start() as running:
        yield running


def send(service: Running, data: bytes, size: int = 2**20) -> tuple[list[Reply], list[SeenRequest]]:
    """Return the responses, and the requests that the application has seen: method, target and body."""
    replies = read_replies(exchange(service.http_port, data, size))
    seen = exchange(
        service.http_port, b"GET /seen HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    requests = json.loads(read_replies(seen)[0].body)
    return replies, [(request["method"], request["uri"], request["body"]) for request in requests]


def check(stream: Stream, data: bytes, replies: list[Reply], seen: list[SeenRequest]) -> None:
    statuses = [reply.status for reply in replies]
    assert len(seen) == statuses.count(200)
    for reply in replies:
        if reply.status != 200:
            assert reply.headers["Connection"] == "close"
            assert list(json.loads(reply.body)) == ["error"]
    if not stream.differs:
        assert seen == parse_with_h11(data).requests[: len(seen)]


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
@pytest.mark.parametrize("is_bytewise", [False, True], ids=["whole", "bytewise"])
def test_stream(service: Running, stream: Stream, is_bytewise: bool) -> None:
    """RFC 9112: a malformed request gets its status code, in one piece or byte by byte."""
    size = 2**20
    if is_bytewise:
        size = 1 if len(stream.data) <= BYTEWISE_BYTES else PIECE_BYTES
    replies, seen = send(service, stream.data, size)
    assert tuple(reply.status for reply in replies) == stream.statuses
    check(stream, stream.data, replies, seen)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_pipelined_stream(service: Running, stream: Stream) -> None:
    """RFC 9112, 9.3.2: a valid request after a stream is served if the stream is valid, and ignored otherwise."""
    data = stream.data + FOLLOWER
    replies, seen = send(service, data)
    check(stream, data, replies, seen)
    if stream.is_whole:
        follows = (200,) if stream.statuses[-1] == 200 else ()
        assert tuple(reply.status for reply in replies) == stream.statuses + follows
        assert [target for _, target, _ in seen].count("/follower") == len(follows)


def test_messages_are_reviewed(service: Running) -> None:
    """The file messages.txt contains the error messages of all streams."""
    replies = [
        reply
        for stream in STREAMS
        for reply in send(service, stream.data)[0]
        if reply.status != 200
    ]
    messages = [json.loads(reply.body)["error"] for reply in replies]
    check_messages("Malformed HTTP (tests/service/server/test_smuggling.py)", messages)


def test_h11_finds_the_valid_requests() -> None:
    """The independent parser finds the requests of a valid stream, so that the comparison means something."""
    data = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nB: c\r\n\r\n"
        + FOLLOWER
    )
    assert parse_with_h11(data).requests == [("POST", "/a", "hello"), ("GET", "/follower", "")]
