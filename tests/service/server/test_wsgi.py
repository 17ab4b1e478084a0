"""WSGI: the environ that the application receives, and the bytes that the server sends for its response."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.service.processes import Running, wait_for, workers
from tests.service.server.applications import LARGE
from tests.service.server.standalone import (
    MAX_BODY_BYTES,
    SECONDS,
    Reply,
    connect,
    exchange,
    read_all,
    read_replies,
    start,
)

APP = "tests.service.server.applications"
EVICTED = "bytes too much memory: closing the slowest clients"
CHUNKED = "Transfer-Encoding: chunked"
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAB")


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    """All clients are trusted proxies."""
    with start("--forwarder-headers", "SCRIPT_NAME,PATH_INFO,REMOTE_USER", app=f"{APP}:by_path") as running:
        yield running


@pytest.fixture(scope="module")
def prefixed() -> Iterator[Running]:
    """No client is a trusted proxy, and the environment has a SCRIPT_NAME."""
    with start("--forwarded-allow-ips", "192.0.2.1", app=f"{APP}:by_path", SCRIPT_NAME="/prefix") as running:
        yield running


@pytest.fixture(scope="module")
def validated() -> Iterator[Running]:
    """wsgiref.validate is between the server and the application."""
    with start(app=f"{APP}:validated") as running:
        yield running


def request(target: str, *fields: str, method: str = "GET", version: str = "1.1", body: bytes = b"") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/{version}", "Host: x", *fields, "", ""]).encode("latin-1") + body


def get(service: Running, target: str, *fields: str, method: str = "GET", version: str = "1.1") -> Reply:
    """Return the only response to a request without a body."""
    received = exchange(service.http_port, request(target, *fields, method=method, version=version))
    [reply] = read_replies(received, method)
    return reply


def echo(service: Running, data: bytes) -> list[dict[str, Any]]:
    """Return the requests that the application echoes."""
    replies = read_replies(exchange(service.http_port, data))
    assert {reply.status for reply in replies} == {200}, replies
    return [json.loads(reply.body) for reply in replies]


def read_seen(service: Running) -> list[dict[str, Any]]:
    return json.loads(get(service, "/seen").body)


def keeps_alive(service: Running, target: str, version: str = "1.1") -> bool:
    """Return whether a second request is served after one for `target`."""
    read_seen(service)
    fields = ["Connection: keep-alive"] if version == "1.0" else []
    exchange(service.http_port, request(target, *fields, version=version) + request("/second"))
    return any(each.get("uri") == "/second" for each in read_seen(service))


# The environ


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (request("/a?b=c"), ""),
        (request("/a", method="POST", body=b"hello").replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n"), "hello"),
        (request("/a", CHUNKED, method="POST", body=b"5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nC: d\r\n\r\n"), "hello!"),
        (request("/a", "Content-Length: 0", method="PUT"), ""),
        (request("/%C3%A4", "A: \xe9", "A: b", "Content-Type: text/plain"), ""),
    ],
)
def test_validated_requests(validated: Running, data: bytes, body: str) -> None:
    """PEP 3333: wsgiref.validate accepts the environ, the input and the calls of the server."""
    [seen] = echo(validated, data)
    assert seen["body"] == body


def test_validated_head(validated: Running) -> None:
    """PEP 3333: wsgiref.validate accepts HEAD, whose response has the header fields of GET and no body."""
    head, get_reply = get(validated, "/a", method="HEAD"), get(validated, "/a", method="PUT")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(get_reply.body) + len("HEAD") - len("PUT")


def test_chunked_request_has_a_length(service: Running) -> None:
    """The environ of a chunked request has CONTENT_LENGTH, and neither Transfer-Encoding nor trailer fields."""
    [seen] = echo(service, request("/a", CHUNKED, method="POST", body=b"5\r\nhello\r\n0\r\nC: d\r\n\r\n"))
    assert seen["headers"] == {"HTTP_HOST": "x", "CONTENT_LENGTH": "5"}


def test_fields(service: Running) -> None:
    """PEP 3333: values are Latin-1, and repeated fields are joined by commas, cookies by semicolons."""
    [seen] = echo(service, request("/a", "A: \xe9", "a: b", "Cookie: c=d", "Cookie: e=f", "B-C:\t g \t"))
    assert seen["headers"] == {"HTTP_HOST": "x", "HTTP_A": "\xe9,b", "HTTP_COOKIE": "c=d; e=f", "HTTP_B_C": "g"}


def test_fields_with_underscores(service: Running, prefixed: Running) -> None:
    """Names with underscores are dropped, except those in forwarder_headers from a trusted proxy."""
    fields = ("X_Y: a", "X-Z: b", "Remote_User: c", "Content_Type: d")
    [trusted], [untrusted] = (
        echo(service, request("/a", *fields)),
        echo(prefixed, request("/prefix/a", *fields, "SCRIPT_NAME: /b", "PATH_INFO: /c")),
    )
    assert trusted["headers"] == {"HTTP_HOST": "x", "HTTP_X_Z": "b", "HTTP_REMOTE_USER": "c"}
    assert untrusted["headers"] == {"HTTP_HOST": "x", "HTTP_X_Z": "b"}
    assert (untrusted["script_name"], untrusted["path"]) == ("/prefix", "/a")


@pytest.mark.parametrize(("target", "path"), [("/prefix", ""), ("/prefix/", "/"), ("/prefix/a?b", "/a")])
def test_script_name_of_the_environment(prefixed: Running, target: str, path: str) -> None:
    """PEP 3333: PATH_INFO is the part of the path after SCRIPT_NAME."""
    [seen] = echo(prefixed, request(target))
    assert (seen["script_name"], seen["path"]) == ("/prefix", path)


@pytest.mark.parametrize("target", ["/", "/other", "/prefixed", "/prefixed/a"])
def test_path_outside_script_name(prefixed: Running, target: str) -> None:
    """A path that is not below SCRIPT_NAME is rejected."""
    assert get(prefixed, target).status == 400


def test_script_name_of_a_proxy(service: Running) -> None:
    """A trusted proxy sets SCRIPT_NAME and PATH_INFO."""
    [seen] = echo(service, request("/b/a", "SCRIPT_NAME: /b"))
    assert (seen["script_name"], seen["path"]) == ("/b", "/a")
    [seen] = echo(service, request("/b/a", "SCRIPT_NAME: /b", "PATH_INFO: /c"))
    assert (seen["script_name"], seen["path"]) == ("/b", "/c")
    assert get(service, "/a", "SCRIPT_NAME: /b").status == 400


@pytest.mark.parametrize(
    ("fields", "scheme"),
    [
        (["X-Forwarded-Proto: https"], "https"),
        (["X-Forwarded-Proto: http"], "http"),
        (["X-Forwarded-Proto: https", "X-Forwarded-Ssl: on"], "https"),
        (["X-Forwarded-Protocol: ssl"], "https"),
        ([], "http"),
    ],
)
def test_scheme(service: Running, prefixed: Running, fields: list[str], scheme: str) -> None:
    """The URL's scheme is that of the fields in secure_scheme_headers, if the client is a trusted proxy."""
    [trusted], [untrusted] = echo(service, request("/a", *fields)), echo(prefixed, request("/prefix/a", *fields))
    assert (trusted["scheme"], untrusted["scheme"]) == (scheme, "http")


def test_contradictory_schemes(service: Running) -> None:
    """If the schemes from a trusted proxy contradict each other, one may come from its client. The scheme is http."""
    reply = get(service, "/a", "X-Forwarded-Proto: https", "X-Forwarded-Ssl: off")
    assert json.loads(reply.body)["scheme"] == "http"


@pytest.mark.parametrize(
    ("target", "host", "path", "query"),
    [
        ("/a?b=c?d", "x", "/a", "b=c?d"),
        ("/a%20b%2fc%C3%A4?%20", "x", "/a b/c\xc3\xa4", "%20"),
        ("//a//b", "x", "//a//b", ""),
        ("/%zz%", "x", "/%zz%", ""),
        ("http://y:80/a?b", "y:80", "/a", "b"),
        ("HTTP://y", "y", "/", ""),
        ("https://y?b", "y", "/", "b"),
    ],
)
def test_targets(service: Running, target: str, host: str, path: str, query: str) -> None:
    """RFC 9112, 3.2.2: an absolute URI replaces Host. The path is decoded, the query is not."""
    [seen] = echo(service, request(target))
    assert (seen["headers"]["HTTP_HOST"], seen["path"], seen["query"]) == (host, path, query)
    assert seen["uri"] == target


def test_options_asterisk(service: Running) -> None:
    """RFC 9112, 3.2.4: the server accepts the target * in an OPTIONS request."""
    [seen] = echo(service, request("*", method="OPTIONS"))
    assert (seen["method"], seen["uri"]) == ("OPTIONS", "*")


# The body


@pytest.mark.parametrize("fields", [(), UPGRADE], ids=["plain", "upgrade"])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_expect_continue(service: Running, fields: tuple[str, ...], is_chunked: bool) -> None:
    """RFC 9110, 10.1.1: the server sends 100 Continue if a client expects it before it sends the body."""
    framing = CHUNKED if is_chunked else "Content-Length: 5"
    with connect(service.http_port) as client:
        client.sendall(request("/a", "Expect: 100-continue", framing, *fields, method="POST"))
        expected = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert client.recv(len(expected), socket.MSG_WAITALL) == expected
        client.sendall(b"5\r\nhello\r\n0\r\n\r\n" if is_chunked else b"hello")
        client.shutdown(socket.SHUT_WR)
        [reply] = read_replies(read_all(client))
    assert json.loads(reply.body)["body"] == "hello"


def test_expect_continue_with_too_large_body(service: Running) -> None:
    """RFC 9110, 10.1.1: the server rejects a request with too large a body instead of sending 100 Continue."""
    reply = get(service, "/a", "Expect: 100-continue", "Content-Length: 999999999", method="POST")
    assert (reply.status, reply.headers["Connection"]) == (413, "close")


@pytest.mark.parametrize("size", [1, 7, 2**20])
@pytest.mark.parametrize(
    ("framing", "body"),
    [
        ("Content-Length: 5", b"hello"),
        (CHUNKED, b"5\r\nhello\r\n0\r\nA: b\r\n\r\n"),
        ("Content-Length: 0", b""),
        ("A: b", b""),
    ],
)
def test_upgrade(service: Running, framing: str, body: bytes, size: int) -> None:
    """RFC 9110, 7.8: the server ignores an upgrade to HTTP/2. The body and the next request are read as usual."""
    first = request("/a", *UPGRADE, framing, method="POST", body=body)
    received = exchange(service.http_port, first + first + request("/b"), size)
    seen = [json.loads(reply.body) for reply in read_replies(received)]
    expected = "hello" if body else ""
    assert [(each["uri"], each["body"]) for each in seen] == [("/a", expected), ("/a", expected), ("/b", "")]
    assert seen[0]["headers"]["HTTP_UPGRADE"] == "h2c"


@pytest.mark.skipif(not shutil.which("javac"), reason="no JDK: test_upgrade sends the same fields")
def test_upgrade_of_the_jdk(service: Running) -> None:
    """RFC 9110, 7.8: the HTTP client of the JDK, which requests an upgrade to HTTP/2, gets responses over HTTP/1.1."""
    command = ["java", str(Path(__file__).with_name("Post.java")), f"http://127.0.0.1:{service.http_port}/jdk"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    replies = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [reply[:2] for reply in replies] == [["200", "HTTP_1_1"]] * 2
    seen = [json.loads(reply[2]) for reply in replies]
    assert [each["body"] for each in seen] == ["hello" * 1000] * 2
    assert seen[0]["headers"]["HTTP_UPGRADE"] == "h2c"


def test_pipelined_requests(service: Running) -> None:
    """RFC 9112, 9.3.2: pipelined requests are served in order."""
    targets = [f"/?{number}" for number in range(500)]
    seen = echo(service, b"".join(map(request, targets)))
    assert [each["uri"] for each in seen] == targets


# The response


@pytest.mark.parametrize(
    ("path", "body"), [("/generate", b"abc"), ("/write", b"abcd"), ("/list", b"abc"), ("/empty", b"")]
)
def test_framing(service: Running, path: str, body: bytes) -> None:
    """RFC 9112, 6: a body of unknown length is chunked in HTTP/1.1, and ends with the connection in HTTP/1.0."""
    is_known = path in ("/list", "/empty")
    reply, old = get(service, path), get(service, path, version="1.0")
    assert reply.body == old.body == body
    assert reply.headers["Transfer-Encoding"] == (None if is_known else "chunked")
    assert reply.headers["Content-Length"] == old.headers["Content-Length"] == (str(len(body)) if is_known else None)
    assert old.headers["Transfer-Encoding"] is None
    assert keeps_alive(service, path)
    assert keeps_alive(service, path, "1.0") == is_known


def test_large_response(service: Running) -> None:
    """A response that does not fit the socket's buffer arrives completely."""
    assert get(service, "/large").body == b"a" * LARGE


def test_large_response_to_a_client_that_pauses() -> None:
    """A client can pause while it reads a response that is larger than the limit for request bodies."""
    data = request("/large", "Connection: close")
    with start("--keep-alive", "1", app=f"{APP}:by_path") as service, connect(service.http_port) as client:
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
        sender = stack.enter_context(connect(service.http_port))
        body = b"a" * MAX_BODY_BYTES
        sender.sendall(request("/a", f"Content-Length: {len(body)}", method="POST", body=body[1:]))
        stack.enter_context(connect(service.http_port)).sendall(request("/large"))
        wait_for(lambda: EVICTED in service.log())
        sender.sendall(body[:1] + request("/close"))
        replies = read_replies(read_all(sender))
    assert [reply.status for reply in replies] == [200, 200]


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


@pytest.mark.parametrize("path", ["/raise-before", "/raise-in-body", "/start-twice", "/never-start", "/text"])
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
    assert reply.headers["Content-Length"] == expected.headers["Content-Length"] == str(len(expected.body))
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
    assert list(reply.headers) == ["Server", "Date", "Connection", "Content-Length", "Content-Type", "A"]
    assert reply.headers["A"].encode("latin-1") == b"\xe9"
    assert get(service, "/hop-by-hop").headers["Transfer-Encoding"] is None


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
    with start(app=f"{APP}:hasty()") as service, connect(service.http_port) as client:
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
    command = ["strace", "-f", "-e", "trace=sendto,sendmsg,writev", "-s", "20", "-o", str(output), "-p", str(worker)]
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
    calls = [line for line in trace.read_text().splitlines() if re.search(r"(sendto|sendmsg|writev)\(", line)]
    assert len(calls) == 1, calls


@pytest.mark.parametrize("path", ["/list", "/echo"])
def test_response_arrives_in_one_segment(service: Running, path: str) -> None:
    """The head and the body of a small response arrive in one segment."""
    with connect(service.http_port) as client:
        client.sendall(request(path))
        received = client.recv(2**16)
    [reply] = read_replies(received)
    assert reply.status == 200
