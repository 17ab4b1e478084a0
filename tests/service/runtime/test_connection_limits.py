"""Very many connections, and the end of a connection."""

from __future__ import annotations

import json
import resource
import socket
import sys
from contextlib import ExitStack

import pytest

from tests.kit.processes import Running, gunicorn, local_settings, started, wait_for
from tests.service.runtime.raw_client import (
    CHUNKED,
    FEW,
    LARGE,
    ROOT,
    SMALL,
    Client,
    body_of,
    head_of,
    is_served,
    request_of,
)

OVERLOADED = "Server overloaded: not enough memory for the request. Retry later."


def test_thousand_idle_connections(running: Running, stack: ExitStack) -> None:
    """1,000 idle connections to each port do not delay other clients, and those to the REST port stay usable."""
    need = 2 * 1000 + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(need, hard), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    clients = [Client(running.http_port, stack) for _ in range(1000)]
    calls = [Client(running.grpc_port, stack) for _ in range(1000)]
    assert is_served(running)
    for client in clients[::20]:
        client.send(SMALL)
        assert client.read_response()[0] == 200
    assert len(calls) == 1000


def test_memory_limit_closes_slowest_clients(stack: ExitStack) -> None:
    """If incomplete requests need more than 8 MiB, the slowest clients get status 503. The other requests complete."""
    service = gunicorn(
        ROOT, "tests.service.apps:echoing()", WORKERS=1, MAX_REQUEST_BYTES=2**20, **FEW
    )
    running = stack.enter_context(service)
    sent = request_of("o" * (2**20 - 1000))
    clients: list[Client] = []

    def open_clients() -> list[Client]:
        return [client for client in clients if not client.has_data_within(0)]

    for count in (12, 4):
        clients += [Client(running.http_port, stack) for _ in range(count)]
        for client in clients[-count:]:
            client.send(sent[:-1])
        wait_for(lambda: len(open_clients()) <= 8)
    assert is_served(running)
    others = open_clients()
    assert len(others) in range(6, 9)
    for client in clients:
        if client in others:
            client.send(sent[-1:])
            assert client.texts() == ["o" * (2**20 - 1000)]
        else:
            status, headers, body = client.read_response()
            assert (status, json.loads(body)["error"]) == (503, OVERLOADED)
            assert headers["retry-after"] == "1"
    assert "requests and responses exceeded" in running.log()


FILES = 300
# Starts gunicorn in a process with a low limit on open files.
LIMITED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_more_connections_than_open_files_limit(stack: ExitStack) -> None:
    """More connections than the limit on open files do not delay other clients, on either port."""
    settings = local_settings(WORKERS=1, **FEW)
    http_port, grpc_port = settings["HTTP_PORT"], settings["GRPC_PORT"]
    command = [
        sys.executable,
        "-c",
        LIMITED,
        sys.executable,
        "-m",
        "gunicorn",
        "tests.service.apps:echoing()",
    ]
    with started(command, ROOT, settings) as service:
        clients = [Client(http_port, stack) for _ in range(2 * FILES)]
        assert is_served(service)
        clients[-1].send(SMALL)
        assert clients[-1].read_response()[0] == 200
        for _ in range(2 * FILES):
            Client(grpc_port, stack)
        clients[-1].send(SMALL)
        assert clients[-1].read_response()[0] == 200
        new_client = Client(http_port, stack)
        new_client.send(SMALL)
        assert new_client.read_response()[0] == 200
        assert "descriptor limit" not in service.log()


@pytest.mark.parametrize("first", [SMALL, LARGE, CHUNKED], ids=["small", "large", "chunked"])
def test_half_closed_client_gets_responses(
    running: Running, stack: ExitStack, first: bytes
) -> None:
    """A client that shuts down its sending side gets all its responses."""
    client = Client(running.http_port, stack)
    client.send(first + SMALL)
    client.sock.shutdown(socket.SHUT_WR)
    assert [client.read_response()[0] for _ in range(2)] == [200, 200]
    assert client.has_ended()


def test_half_closed_client_gets_response_with_batching(stack: ExitStack) -> None:
    """With batching, a client that shuts down its sending side gets the response to a request that did not wait."""
    service = stack.enter_context(
        gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, MAX_BATCH_SIZE=8)
    )
    client = Client(service.http_port, stack)
    client.send(SMALL)
    client.sock.shutdown(socket.SHUT_WR)
    assert client.read_response()[0] == 200


@pytest.mark.parametrize(
    ("version", "lines"),
    [
        ("1.0", []),
        ("1.1", ["Connection: close"]),
        ("1.1", ["Connection: TE, Close"]),
        ("1.1", ["Connection: TE,\tclose"]),
        ("1.1", ["Connection: TE", "Connection: close"]),
    ],
)
def test_closes_connection_on_request(
    running: Running, stack: ExitStack, version: str, lines: list[str]
) -> None:
    """The server closes the connection after a request of HTTP/1.0 or with `Connection: close`."""
    client, body = Client(running.http_port, stack), body_of("g" * 10**6)
    client.send(head_of(body, f"Content-Length: {len(body)}", *lines, version=version) + body)
    assert client.texts() == ["g" * 10**6]
    assert client.has_ended()
