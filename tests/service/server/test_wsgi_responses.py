"""Responses of WSGI applications, as clients receive them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.kit.processes import Running, wait_for, workers
from tests.kit.standalone import (
    MAX_BODY_BYTES,
    connect,
    exchange,
    read_all,
    read_replies,
    start,
)
from tests.service.server.applications import LARGE
from tests.service.server.wsgi_client import APP, get, keeps_alive, read_seen, request

EVICTED = "requests and responses exceeded"


def test_large_response(service: Running) -> None:
    """A response that does not fit the socket's buffer arrives completely."""
    assert get(service, "/large").body == b"a" * LARGE


def test_large_response_to_a_client_that_pauses() -> None:
    """A client can pause while it reads a response that is larger than the limit for request bodies."""
    data = request("/large", "Connection: close")
    with (
        start("--keep-alive", "1", app=f"{APP}:by_path") as service,
        connect(service.http_port) as client,
    ):
        client.sendall(data)
        first = client.recv(1)
        with connect(service.http_port) as idle:
            assert idle.recv(1) == b""  # the server has checked for timeouts
        [reply] = read_replies(first + read_all(client))
    assert len(reply.body) == LARGE


def test_overdue_request_is_served_completely() -> None:
    """An overdue request gets its complete response if a thread serves it before the connection is closed."""
    with start(app=f"{APP}:racing()") as service, connect(service.http_port) as client:
        data = request("/large", "Connection: close")
        client.sendall(data[:-1])
        wait_for(lambda: "overdue" in service.log())
        client.sendall(data[-1:])
        [reply] = read_replies(read_all(client))
    assert reply.body == b"a" * LARGE


def test_memory_limit_closes_unread_responses(service: Running) -> None:
    """If unread responses need too much memory, the server closes their connections before one that sends a request."""
    with ExitStack() as stack:
        for _ in range(4):  # as many as there are threads
            stack.enter_context(connect(service.http_port)).sendall(request("/large"))
        stack.enter_context(connect(service.http_port)).sendall(request("/large"))

        # The responses are closed when their clients have read nothing for a second, and the memory
        # is needed.
        wait_for(lambda: upload(service) == [200, 200] and EVICTED in service.log())


def upload(service: Running) -> list[int]:
    """Send a large body and another request, and return the statuses."""
    body = b"a" * MAX_BODY_BYTES
    head = request("/a", f"Content-Length: {len(body)}", method="POST", body=body[1:])
    with connect(service.http_port) as sender:
        sender.sendall(head)
        with suppress(OSError):  # the server has rejected the body
            sender.sendall(body[:1] + request("/close"))
        replies = read_replies(read_all(sender))
    return [reply.status for reply in replies]


def test_too_much_body(service: Running) -> None:
    """PEP 3333: the server sends no more than Content-Length."""
    assert get(service, "/too-much").body == b"abc"
    assert keeps_alive(service, "/too-much")


def test_too_little_body(service: Running) -> None:
    """PEP 3333: a body that is shorter than Content-Length ends with the connection."""
    with pytest.raises(HTTPException):
        get(service, "/too-little")
    assert not keeps_alive(service, "/too-little")


@pytest.mark.parametrize("path", ["/204", "/304"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_statuses_without_a_body(service: Running, path: str, version: str) -> None:
    """RFC 9110, 6.4.1: a response with 204 or 304 has no body, and no header field about one."""
    received = exchange(service.http_port, request(path, version=version))
    assert received.endswith(b"\r\n\r\n")
    assert b"\r\nTransfer-Encoding:" not in received
    assert b"\r\nContent-Length:" not in received
    assert keeps_alive(service, path, version)


@pytest.mark.parametrize("path", ["/generate", "/write", "/list", "/too-much", "/large", "/204"])
def test_head(service: Running, path: str) -> None:
    """RFC 9110, 9.3.2: the response to HEAD has no body, and the next request is served."""
    received = exchange(service.http_port, request(path, method="HEAD") + request("/list"))
    first, second = received.split(b"\r\n\r\n", 1)
    assert first.startswith(b"HTTP/1.1 20")
    assert [reply.body for reply in read_replies(second)] == [b"abc"]


def test_head_of_unknown_length(service: Running) -> None:
    """RFC 9110, 8.6: the response to HEAD states no length that the response to GET would not have."""
    reply = get(service, "/empty", method="HEAD")
    assert reply.headers["Content-Length"] is None


def test_expect_continue_after_unread_response(service: Running) -> None:
    """RFC 9110, 10.1.1: a client that reads a large response first still gets 100 Continue for its next request."""
    with connect(service.http_port) as client:
        head = request("/a", "Expect: 100-continue", "Content-Length: 5", method="POST")
        client.sendall(request("/large") + head)
        received = b""
        while not received.endswith(b"HTTP/1.1 100 Continue\r\n\r\n"):
            received += client.recv(2**20)
            received = received[-100:]
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        [reply] = read_replies(read_all(client))
    assert json.loads(reply.body)["body"] == "hello"


@pytest.mark.parametrize(
    "path", ["/raise-before", "/raise-in-body", "/start-twice", "/never-start", "/text"]
)
def test_exception_before_the_head(service: Running, path: str) -> None:
    """An exception of the application becomes 500, without its message, and closes the connection."""
    reply = get(service, path)
    assert (reply.status, reply.headers["Connection"]) == (500, "close")
    assert b"of the application" not in reply.body
    assert list(json.loads(reply.body)) == ["error"]
    assert not keeps_alive(service, path)


@pytest.mark.parametrize("path", ["/raise-before", "/raise-in-body", "/invalid-204"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_exception_for_head(service: Running, path: str, version: str) -> None:
    """RFC 9110, 9.3.2: a 500 response to HEAD has no body, and the Content-Length of the response to GET."""
    received = exchange(service.http_port, request(path, method="HEAD", version=version))
    assert received.startswith(f"HTTP/{version} 500 ".encode())
    assert received.endswith(b"\r\n\r\n")
    [reply] = read_replies(received, "HEAD")
    expected = get(service, path, version=version)
    assert expected.body
    assert (
        reply.headers["Content-Length"]
        == expected.headers["Content-Length"]
        == str(len(expected.body))
    )
    assert expected.headers["Server"] == "standalone"


@pytest.mark.parametrize("path", ["/raise-after", "/change-mind-late"])
def test_exception_after_the_head(service: Running, path: str) -> None:
    """PEP 3333: if the application fails after the head is sent, the client notices that the response is incomplete."""
    with pytest.raises(HTTPException):
        get(service, path)
    assert not keeps_alive(service, path)


def test_new_head_after_an_exception(service: Running) -> None:
    """PEP 3333: start_response() with exc_info replaces a head that is not sent."""
    reply = get(service, "/change-mind")
    assert (reply.status, reply.body, reply.headers["A"]) == (502, b"sorry", None)


@pytest.mark.parametrize("path", ["/raise-in-body", "/change-mind"])
def test_close_of_the_body(service: Running, path: str) -> None:
    """PEP 3333: close() of the body is called, also after an exception."""
    read_seen(service)
    get(service, path)
    assert read_seen(service) == [{"closed": True}]


@pytest.mark.parametrize(
    "path",
    [
        "/status-with-lines",
        "/status-without-number",
        "/status-of-two-digits",
        "/status-informational",
        "/status-empty",
        "/value-with-lines",
        "/value-with-lf",
        "/value-with-nul",
        "/value-not-latin-1",
        "/name-with-space",
        "/name-with-lines",
        "/name-empty",
        "/length-not-a-number",
        "/length-negative",
    ],
)
def test_invalid_head(service: Running, path: str) -> None:
    """RFC 9110, 5.5: an invalid status or header field of the application results in a response with status 500."""
    assert get(service, path).status == 500


def test_valid_head(service: Running) -> None:
    """Values can be Latin-1. The server adds Server, Date and Connection, and sets the framing itself."""
    reply = get(service, "/latin-1")
    assert list(reply.headers) == [
        "Server",
        "Date",
        "Connection",
        "Content-Length",
        "Content-Type",
        "A",
    ]
    assert reply.headers["A"].encode("latin-1") == b"\xe9"
    assert get(service, "/hop-by-hop").headers["Transfer-Encoding"] is None


@pytest.mark.parametrize(("path", "name"), [("/date", "Date"), ("/server", "Server")])
def test_fields_that_the_server_sets(service: Running, path: str, name: str) -> None:
    """RFC 9110, 5.3: a response has one Date and one Server, which are those of the server."""
    [value] = get(service, path).headers.get_all(name)
    assert value not in ("Thu, 01 Jan 1970 00:00:00 GMT", "application")


def test_application_closes_the_connection(service: Running) -> None:
    """The connection ends after a response with Connection: close."""
    assert get(service, "/close").headers["Connection"] == "close"
    assert not keeps_alive(service, "/close")


def test_http_1_0(service: Running) -> None:
    """RFC 9112, 9.3: the server closes an HTTP/1.0 connection unless the client sends `Connection: keep-alive`."""
    data = request("/list", version="1.0") + request("/second", version="1.0")
    assert len(read_replies(exchange(service.http_port, data))) == 1
    assert get(service, "/list", version="1.0").headers["Connection"] == "close"
    kept = get(service, "/list", "Connection: Keep-Alive", version="1.0")
    assert kept.headers["Connection"] == "keep-alive"


def test_failed_send_closes_connection() -> None:
    """After a failed send, the server closes the connection, even if the application ignores the error."""
    with start(app=f"{APP}:short_timeouts()") as service, connect(service.http_port) as client:
        client.sendall(request("/ignore-errors") + request("/second"))
        wait_for(lambda: {"failed": True} in read_seen(service))
        received = read_all(client)
        assert read_seen(service) == []
    assert received.count(b"HTTP/1.1 ") == 1
    assert len(received) < LARGE


@contextmanager
def trace_sends(service: Running, output: Path) -> Iterator[None]:
    """Trace the worker's calls of send() to the file `output`."""
    [worker] = workers(service)
    command = [
        "strace",
        "-f",
        "-e",
        "trace=sendto,sendmsg,writev",
        "-s",
        "20",
        "-o",
        str(output),
        "-p",
        str(worker),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        if b"attached" not in line:
            tracer.terminate()
            pytest.skip(f"strace may not trace: {line.decode()}")
        try:
            yield
            wait_for(lambda: b"HTTP/1.1 " in output.read_bytes())
        finally:
            tracer.terminate()
            tracer.stderr.read()


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("path", ["/list", "/echo", "/304"])
def test_one_send(service: Running, tmp_path: Path, path: str) -> None:
    """The head and the body of a small response are sent with one system call."""
    trace = tmp_path / "trace.txt"
    with trace_sends(service, trace):
        get(service, path)
    calls = [
        line
        for line in trace.read_text().splitlines()
        if re.search(r"(sendto|sendmsg|writev)\(", line)
    ]
    assert len(calls) == 1, calls


@pytest.mark.parametrize("path", ["/list", "/echo"])
def test_response_arrives_in_one_segment(service: Running, path: str) -> None:
    """The head and the body of a small response arrive in one segment."""
    with connect(service.http_port) as client:
        client.sendall(request(path))
        received = client.recv(2**16)
    [reply] = read_replies(received)
    assert reply.status == 200
