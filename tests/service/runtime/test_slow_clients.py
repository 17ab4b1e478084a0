"""Slow clients, which must not delay other clients."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.processes import Running, gunicorn, wait_for
from tests.service.runtime.raw_client import (
    CHUNKED,
    FEW,
    HALVES,
    LARGE,
    PATIENCE,
    ROOT,
    SLOW,
    SMALL,
    Client,
    is_served,
    request_of,
    texts_of,
)


@pytest.mark.parametrize("name", HALVES)
def test_slow_clients_delay_no_others(running: Running, stack: ExitStack, name: str) -> None:
    """Clients that pause do not delay others, even if they outnumber the threads, and get their responses later."""
    first, rest = HALVES[name]
    clients = [Client(running.http_port, stack) for _ in range(SLOW)]
    for client in clients:
        client.send(first)
    assert is_served(running)
    for client in clients:
        client.send(rest)
    for client in clients:
        for _ in range(2 if name == "a request and a half" else 1):
            status, _, body = client.read_response()
            assert status == 200
        assert texts_of(body)[0] in ("a" * 100, "b" * 10**6, "c" * 10**5)


def test_requests_sent_byte_by_byte(running: Running, stack: ExitStack) -> None:
    """Clients that send their requests byte by byte at the same time get responses."""
    clients = [Client(running.http_port, stack) for _ in range(SLOW)]
    for index in range(len(SMALL)):
        for client in clients:
            client.send(SMALL[index : index + 1])
        if index % 60 == 0:
            assert is_served(running)
    assert {client.texts()[0] for client in clients} == {"a" * 100}


def test_slow_readers_delay_no_others(running: Running, stack: ExitStack) -> None:
    """Clients that read large responses late do not delay others, even if they outnumber the threads."""
    # All of them together stay below the memory limit of one worker.
    text = "d" * (6 * 2**20)
    clients = [Client(running.http_port, stack, room=2**16) for _ in range(SLOW // 2 + 6)]
    for client in clients:
        client.send(request_of(text))
    assert is_served(running)
    for client in clients:
        assert client.texts() == [text]


@pytest.mark.parametrize("count", [SLOW, 100])
def test_slow_readers_of_streams_delay_no_others(stack: ExitStack, count: int) -> None:
    """Slow readers of streams delay no other clients. If there are very many, some get incomplete responses."""
    service = stack.enter_context(
        gunicorn(ROOT, "tests.service.apps:streaming()", WORKERS=1, **FEW)
    )
    clients = [Client(service.http_port, stack, room=2**16) for _ in range(count)]
    for client in clients:
        client.send(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    for client in clients[-8:]:
        assert client.has_data_within(PATIENCE)
        assert is_served(service)
    expected = [b"%-1048576d" % index for index in range(20)]
    whole = [pieces(client) == expected for client in clients]
    assert all(whole) if count == SLOW else sum(whole) > SLOW
    assert is_served(service)


def pieces(client: Client) -> list[bytes]:
    """Return the chunks of the response, or an empty list if the connection fails."""
    try:
        client.read_response()
        chunks = []
        while size := int(client.file.readline() or b"0", 16):
            chunks.append(client.file.read(size + 2)[:-2])
        return chunks
    except OSError:
        return []


def test_unread_stream_times_out(short_timeouts: Running, stack: ExitStack) -> None:
    """The server closes the connection of a client that does not read the next chunk in time."""
    clients = [Client(short_timeouts.http_port, stack, room=4096) for _ in range(4)]
    for client in clients:
        client.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.has_data_within(PATIENCE)
    wait_for(lambda: not connections_of(short_timeouts.http_port))
    assert is_served(short_timeouts)


@pytest.mark.parametrize("first", [SMALL[:1], SMALL[:-50], LARGE[:-9], CHUNKED[:-5]], ids=len)
def test_incomplete_request_times_out(
    short_timeouts: Running, stack: ExitStack, first: bytes
) -> None:
    """The server responds with 408 to a request that is incomplete after the time limit, and closes the connection."""
    client = Client(short_timeouts.http_port, stack)
    client.send(first)
    status, headers, body = client.read_response()
    assert (status, headers["connection"]) == (408, "close")
    assert json.loads(body) == {"error": "Request timeout: the request did not arrive in time."}
    assert client.has_ended()


@pytest.mark.parametrize(
    "read", [[], ["d" * (10 * 2**20)]], ids=["first", "after a large response"]
)
def test_single_bytes_do_not_extend_time_limit(
    short_timeouts: Running, stack: ExitStack, read: list[str]
) -> None:
    """Single bytes do not extend the time limit of a request, even after the client has read a large response."""
    client = Client(short_timeouts.http_port, stack, room=4096)
    for text in read:
        client.send(request_of(text))
        assert client.texts() == [text]
    for index in range(len(SMALL)):
        client.send(SMALL[index : index + 1])
        if client.has_data_within(0.1):
            break
    assert index < len(SMALL) - 1
    assert client.read_response()[0] == 408


def test_unread_response_times_out(short_timeouts: Running, stack: ExitStack) -> None:
    """The server closes the connection of a client that does not read its response in time."""
    clients = [Client(short_timeouts.http_port, stack, room=4096) for _ in range(4)]
    for client in clients:
        client.send(request_of("d" * (10 * 2**20)))
    for client in clients:
        assert client.has_data_within(PATIENCE)
    wait_for(lambda: not connections_of(short_timeouts.http_port))
    assert is_served(short_timeouts)


def connections_of(port: int) -> int:
    """Return the number of connections of the port that a process has not closed."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    states = ("01", "08")  # established, and closed by the client
    return sum(
        int(row[1].split(":")[1], 16) == port and row[3] in states and row[9] != "0" for row in rows
    )
