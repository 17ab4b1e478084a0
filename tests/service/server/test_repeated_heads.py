"""Requests whose head equals that of an earlier request. The server does not parse such a head again."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from app.server.request_parser import MAX_HEADS
from tests.kit.processes import Running
from tests.kit.standalone import connect, read_all, read_replies, start

HEAD = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Id: 1\r\nContent-Length: 5\r\n\r\n"
CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with start(app="tests.service.server.applications:clear_environ") as running:
        yield running


@pytest.fixture
def client(service: Running) -> Iterator[socket.socket]:
    with connect(service.http_port) as connection:
        yield connection


def send(client: socket.socket, *pieces: bytes) -> dict[str, Any]:
    """Send a request in separate segments. Return the request that the application received."""
    for piece in pieces:
        client.sendall(piece)
    [reply] = read_replies(client.recv(2**16))
    assert reply.status == 200
    return json.loads(reply.body)


def finish(client: socket.socket, data: bytes) -> list[Any]:
    """Send the last data of a connection. Return the bodies that the application received, and the error statuses."""
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)
    replies = read_replies(read_all(client))
    return [
        json.loads(each.body)["body"] if each.status == 200 else each.status for each in replies
    ]


def test_body_of_each_request(client: socket.socket) -> None:
    """Requests with equal heads have their own bodies, and nothing else differs."""
    first, second, third = (
        send(client, HEAD + body) for body in (b"hello", b"\r\n\r\n\0", b"12345")
    )
    assert [each.pop("body") for each in (first, second, third)] == ["hello", "\r\n\r\n\0", "12345"]
    assert first == second == third
    assert first["headers"] == {"HTTP_HOST": "x", "HTTP_X_ID": "1", "CONTENT_LENGTH": "5"}


def test_peer_of_each_connection(service: Running) -> None:
    """A request has the address of its own client if another client sent the same head before."""
    for _ in range(2):
        with connect(service.http_port) as client:
            assert send(client, HEAD + b"hello")["port"] == str(client.getsockname()[1])


@pytest.mark.parametrize("size", [1, len(HEAD) - 2, len(HEAD), len(HEAD) + 3])
def test_head_in_pieces(client: socket.socket, size: int) -> None:
    """A known head that arrives in pieces, or before its body, begins the same request."""
    send(client, HEAD + b"hello")
    data = HEAD + b"world"
    assert send(client, data[:size], data[size:])["body"] == "world"


@pytest.mark.parametrize(
    ("data", "results"),
    [
        (HEAD + b"world" + HEAD + b"again", ["world", "again"]),
        (HEAD + b"world" + b"G", ["world", 400]),
        (HEAD + b"worl", [400]),
        (HEAD + HEAD + b"world", [HEAD[:5].decode(), 400]),
        (HEAD.replace(b": 5", b": 4") + b"world", ["worl", 400]),
        (HEAD.replace(b"Host: x\r\n", b"") + b"world", [400]),
        (b"\r\n\r\n" + HEAD + b"world", ["world"]),
        (CHUNKED_HEAD + b"5\r\nagain\r\n0\r\n\r\n", ["again"]),
        (CHUNKED_HEAD + b"0\r\n\r\n" + HEAD + b"world", ["", "world"]),
    ],
)
def test_data_after_a_known_head(client: socket.socket, data: bytes, results: list[Any]) -> None:
    """Only a head and a body of the stated size are a request. All other data is parsed."""
    send(client, HEAD + b"hello")
    send(client, CHUNKED_HEAD + b"5\r\nhello\r\n0\r\n\r\n")
    assert finish(client, data) == results


def test_many_heads(client: socket.socket) -> None:
    """The server forgets heads when clients send many different ones."""
    for number in (*range(2 * MAX_HEADS), *range(2 * MAX_HEADS)):
        head = HEAD.replace(b"X-Id: 1", b"X-Id: %d" % number)
        assert send(client, head + b"hello")["headers"]["HTTP_X_ID"] == str(number)


def test_close_after_a_known_head(service: Running) -> None:
    """Connection: close ends each connection, also if the head is the same."""
    head = HEAD.replace(b"X-Id: 1", b"Connection: close")
    for _ in range(2):
        with connect(service.http_port) as client:
            client.sendall(head + b"hello")
            [reply] = read_replies(read_all(client))
            assert (reply.status, reply.headers["Connection"]) == (200, "close")


def test_trusted_proxies() -> None:
    """A header that is trusted from a proxy is not trusted from another client with the same head."""
    head = HEAD.replace(b"X-Id: 1", b"X-Forwarded-Proto: https")
    options = "--forwarded-allow-ips", "127.0.0.2"
    with start(*options, app="tests.service.server.applications:clear_environ") as running:
        for source, scheme in (
            ("127.0.0.2", "https"),
            ("127.0.0.1", "http"),
            ("127.0.0.2", "https"),
        ):
            address = "127.0.0.1", running.http_port
            with socket.create_connection(
                address, timeout=60, source_address=(source, 0)
            ) as client:
                assert send(client, head + b"hello")["scheme"] == scheme
