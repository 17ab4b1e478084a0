"""Malformed, very large and slow request bodies."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.processes import Running, gunicorn, wait_for, workers
from tests.service.runtime.raw_client import (
    FEW,
    LIMIT,
    ROOT,
    SMALL,
    Client,
    body_of,
    chunked,
    head_of,
    request_of,
    texts_of,
)

FLOODS = {
    "a head without end": (b"GET /v2 HTTP/1.1\r\n" + b"a: b\r\n" * 100_000, 431),
    "a line without end": (b"GET /v2 HTTP/1.1\r\na: " + b"b" * 1_000_000, 431),
    "a path without end": (b"GET /" + b"a" * 1_000_000, 414),
    "another coding, whole": (
        head_of(b"", "Transfer-Encoding: gzip, chunked") + chunked(body_of("a")),
        501,
    ),
    "a long chunk line": (head_of(b"", "Transfer-Encoding: chunked") + b"1;" + b"a" * 100_000, 400),
    "a chunk over the limit": (
        head_of(b"", "Transfer-Encoding: chunked") + b"2000000\r\n" + b"x" * (LIMIT + 9),
        413,
    ),
    "a body over the limit": (head_of(b"", f"Content-Length: {LIMIT + 1}"), 413),
    "too much of chunks": (
        head_of(b"", "Transfer-Encoding: chunked") + b"1;a\r\nx\r\n" * 20_000,
        400,
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_rejects_malformed_and_too_large_requests(
    running: Running, stack: ExitStack, name: str
) -> None:
    """The server rejects a malformed or too large request with a JSON error, and closes the connection."""
    sent, status = FLOODS[name]
    client = Client(running.http_port, stack)
    client.send(sent)
    got, headers, body = client.read_response()
    assert (got, headers["connection"]) == (status, "close")
    assert list(json.loads(body)) == ["error"]
    assert client.has_ended()


@pytest.mark.parametrize(
    ("request_version", "response_version"),
    [("1.0", b"1.0"), ("1.1", b"1.1"), ("1.2", b"1.1"), ("1.9", b"1.1")],
)
def test_http_version_of_response(
    running: Running, stack: ExitStack, request_version: str, response_version: bytes
) -> None:
    """The response has the highest HTTP version that both the client and the server support."""
    client = Client(running.http_port, stack)
    client.send(f"GET /v2/health/live HTTP/{request_version}\r\nHost: x\r\n\r\n".encode())
    assert client.file.readline() == b"HTTP/%s 200 OK\r\n" % response_version


@pytest.mark.parametrize("length", [60_000, 70_000, LIMIT])
@pytest.mark.parametrize(
    ("start", "status"), [(b"GET /v2/health/live", 200), (b"POST /v2/nothing", 404)]
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_unread_body_keeps_connection_open(
    running: Running, stack: ExitStack, length: int, start: bytes, status: int, is_chunked: bool
) -> None:
    """R20: after a request with a body that no route reads, of any size, the server handles the next request."""
    body = b"y" * length
    line = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % length
    client = Client(running.http_port, stack)
    for _ in range(2):
        client.send(
            start
            + b" HTTP/1.1\r\nHost: x\r\n"
            + line
            + b"\r\n\r\n"
            + (chunked(body) if is_chunked else body)
        )
    client.send(SMALL)
    assert [client.read_response()[0] for _ in range(3)] == [status, status, 200]


@pytest.mark.parametrize("size", [1000, 65_000, 100_000])
def test_large_request_after_chunked_body(running: Running, stack: ExitStack, size: int) -> None:
    """Bytes of the next request that arrive with the last chunk of a body are not added to that body."""
    first = (
        b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunked(b"hello")
    )
    client = Client(running.http_port, stack)
    for _ in range(5):
        client.send(SMALL + first[:-9])
        assert client.texts() == ["a" * 100]
        client.send(first[-9:] + request_of("d" * size))
        assert client.read_response()[0] == 200
        assert client.texts() == ["d" * size]


@pytest.mark.parametrize("sent", [1, 60, len(SMALL) - 1, len(SMALL)])
def test_request_at_keepalive_timeout(stack: ExitStack, tmp_path: Path, sent: int) -> None:
    """A client that sends within KEEPALIVE_SECONDS gets a response, even if no thread was free to read its request."""
    settings = {"WORKERS": 1, "KEEPALIVE_SECONDS": 3, "FOLDER": tmp_path, **FEW}
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:hold_route()", **settings))

    def hold_thread(index: int) -> Client:
        hold = Client(service.http_port, stack)
        hold.send(b"GET /hold/%d HTTP/1.1\r\nHost: x\r\n\r\n" % index)
        wait_for((tmp_path / str(index)).exists)
        return hold

    holds = [hold_thread(index) for index in range(7)]  # all threads but one
    client = Client(service.http_port, stack)
    client.send(SMALL)
    assert client.texts() == ["a" * 100]
    idle = Client(service.http_port, stack)
    holds.append(hold_thread(7))
    client.send(SMALL[:sent])
    # All threads are busy. The time of `client` is over before that of `idle`.
    assert idle.has_ended()
    (tmp_path / "go").touch()
    client.send(SMALL[sent:])
    assert client.texts() == ["a" * 100]
    assert [client.read_response()[0] for client in holds] == [200] * len(holds)


@pytest.mark.parametrize(("path", "status"), [("/v2/nothing", 404), ("/read", 200)])
def test_body_needs_linear_time(stack: ExitStack, path: str, status: int) -> None:
    """The CPU time for a body grows linearly with its size, whether or not a custom route reads it."""
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:cpu_time()", WORKERS=1))
    client = Client(service.http_port, stack)
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [0]}]}
    ).encode()
    valid_request = head_of(body) + body
    client.send(
        valid_request
        + head_of(b"", f"Content-Length: {4 * LIMIT}", path=path)
        + b"y" * 4 * LIMIT
        + valid_request
    )
    before, response, after = (client.read_response() for _ in range(3))
    assert response[0] == status
    assert milliseconds(after) - milliseconds(before) < 4000


@pytest.mark.parametrize("size", [2**20, LIMIT])
def test_announced_body_needs_no_memory(running: Running, stack: ExitStack, size: int) -> None:
    """A client that announces a large body does not occupy memory of the server before it sends the body.

    The second round can reuse memory that the first one has released. The last client of the first
    round keeps the end of the heap in use.
    """

    def announce(clients: list[Client]) -> None:
        for client in clients:
            client.send(head_of(b"", f"Content-Length: {size}", "Expect: 100-continue"))
            assert client.file.readline() == b"HTTP/1.1 100 Continue\r\n"

    def connect() -> list[Client]:
        return [Client(running.http_port, stack) for _ in range(40)]

    first_round = connect()
    before = resident(running)
    announce(first_round)
    for client in first_round[:-1]:
        client.sock.shutdown(socket.SHUT_RDWR)
    announce(connect())
    assert resident(running) - before < 2**23


def resident(running: Running) -> int:
    """Return the resident memory of all workers in bytes."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in workers(running)]
    return sum(pages) * resource.getpagesize()


def milliseconds(response: tuple[int, dict[str, str], bytes]) -> int:
    return json.loads(response[2])["outputs"][0]["data"][0]


@pytest.mark.parametrize("end", [b"x\r\n", b"0\r\nno colon\r\n\r\n"])
def test_rejects_malformed_unread_body(running: Running, stack: ExitStack, end: bytes) -> None:
    """R20: the server rejects a request with a malformed body, even if no route reads it, and closes the connection."""
    client = Client(running.http_port, stack)
    head = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(head + b"1\r\ny\r\n" + end + SMALL)
    assert client.read_response()[0] == 400
    assert client.has_ended()


@pytest.mark.parametrize("extra", [0, 1])
def test_size_limit_of_chunked_body(running: Running, stack: ExitStack, extra: int) -> None:
    """MAX_REQUEST_BYTES limits the data of a chunked body. The size of the chunk headers does not count."""
    body = body_of("f")
    body += b" " * (LIMIT + extra - len(body))
    client = Client(running.http_port, stack)
    client.send(head_of(b"", "Transfer-Encoding: chunked") + chunked(body, 5000))
    assert client.read_response()[0] == (413 if extra else 200)


@pytest.mark.parametrize(("size", "count", "expected"), [(5, 90_000, 400), (200, 70_000, 200)])
def test_rejects_many_small_chunks(
    running: Running, stack: ExitStack, size: int, count: int, expected: int
) -> None:
    """R20: the server rejects a body of very many chunks that contain only a few bytes each."""
    body = body_of("f" * (size * count))
    client = Client(running.http_port, stack)
    client.send(head_of(b"", "Transfer-Encoding: chunked") + chunked(body, size))
    assert client.read_response()[0] == expected


messages = st.one_of(
    st.integers(0, 300).map(lambda size: (request_of("h" * size), ["h" * size])),
    st.integers(60_000, 90_000).map(lambda size: (request_of("i" * size), ["i" * size])),
    st.tuples(st.integers(1, 3000), st.integers(1, 500), st.sampled_from([b"", b"A: b\r\n"])).map(
        lambda sizes: (
            head_of(b"", "Transfer-Encoding: chunked")
            + chunked(body_of("j" * sizes[0]), *sizes[1:]),
            ["j" * sizes[0]],
        )
    ),
    st.integers(0, 3000).map(
        lambda size: (
            head_of(
                packed := gzip.compress(body_of("k" * size)),
                "Content-Encoding: gzip",
                f"content-length:{len(packed)}",
            )
            + packed,
            ["k" * size],
        )
    ),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=st.lists(messages, min_size=1, max_size=4),
    places=st.sets(st.integers(0, 2**20), max_size=8),
)
def test_requests_in_pieces(
    running: Running, requests: list[tuple[bytes, list[str]]], places: set[int]
) -> None:
    """Requests that are split anywhere get their own responses, in order."""
    sent = b"".join(request for request, _ in requests)
    cuts = sorted({1 + place % (len(sent) - 1) for place in places})
    with ExitStack() as stack:
        client = Client(running.http_port, stack)
        for start, end in pairwise([0, *cuts, len(sent)]):
            client.send(sent[start:end])
            time.sleep(0.001)  # so that TCP can send the piece as a separate segment
        for _, texts in requests:
            status, _, body = client.read_response()
            assert (status, texts_of(body)) == (200, texts)
