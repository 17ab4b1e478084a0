"""Requests, as WSGI applications receive them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.processes import Running
from tests.kit.standalone import (
    SECONDS,
    connect,
    exchange,
    read_all,
    read_replies,
    start,
)
from tests.service.server.wsgi_client import APP, get, keeps_alive, request

CHUNKED = "Transfer-Encoding: chunked"
UPGRADE = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAAB",
)


@pytest.fixture(scope="module")
def prefixed() -> Iterator[Running]:
    """No client is a trusted proxy, and the environment has a SCRIPT_NAME."""
    with start(
        "--forwarded-allow-ips", "192.0.2.1", app=f"{APP}:by_path", SCRIPT_NAME="/prefix"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def validated() -> Iterator[Running]:
    """wsgiref.validate is between the server and the application."""
    with start(app=f"{APP}:validated") as running:
        yield running


def echo(service: Running, data: bytes) -> list[dict[str, Any]]:
    """Return the requests that the application echoes."""
    replies = read_replies(exchange(service.http_port, data))
    assert {reply.status for reply in replies} == {200}, replies
    return [json.loads(reply.body) for reply in replies]


# The environ


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (request("/a?b=c"), ""),
        (
            request("/a", method="POST", body=b"hello").replace(
                b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n"
            ),
            "hello",
        ),
        (
            request(
                "/a", CHUNKED, method="POST", body=b"5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nC: d\r\n\r\n"
            ),
            "hello!",
        ),
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
    [seen] = echo(
        service, request("/a", CHUNKED, method="POST", body=b"5\r\nhello\r\n0\r\nC: d\r\n\r\n")
    )
    assert seen["headers"] == {"HTTP_HOST": "x", "CONTENT_LENGTH": "5"}


def test_fields(service: Running) -> None:
    """PEP 3333: values are Latin-1, and repeated fields are joined by commas, cookies by semicolons."""
    [seen] = echo(
        service, request("/a", "A: \xe9", "a: b", "Cookie: c=d", "Cookie: e=f", "B-C:\t g \t")
    )
    assert seen["headers"] == {
        "HTTP_HOST": "x",
        "HTTP_A": "\xe9,b",
        "HTTP_COOKIE": "c=d; e=f",
        "HTTP_B_C": "g",
    }


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


@pytest.mark.parametrize(
    ("target", "path"), [("/prefix", ""), ("/prefix/", "/"), ("/prefix/a?b", "/a")]
)
def test_script_name_of_the_environment(prefixed: Running, target: str, path: str) -> None:
    """PEP 3333: PATH_INFO is the part of the path after SCRIPT_NAME."""
    [seen] = echo(prefixed, request(target))
    assert (seen["script_name"], seen["path"]) == ("/prefix", path)


@pytest.mark.parametrize("target", ["/", "/other", "/prefixed", "/prefixed/a"])
def test_path_outside_script_name(prefixed: Running, target: str) -> None:
    """A path that is not below SCRIPT_NAME is rejected."""
    assert get(prefixed, target).status == 400


def test_script_name_of_a_proxy(service: Running) -> None:
    """A trusted proxy can set SCRIPT_NAME. The path is always that of the target, as in gunicorn."""
    [seen] = echo(service, request("/b/a", "SCRIPT_NAME: /b"))
    assert (seen["script_name"], seen["path"]) == ("/b", "/a")
    [seen] = echo(service, request("/b/a", "SCRIPT_NAME: /b", "PATH_INFO: /c"))
    assert (seen["script_name"], seen["path"]) == ("/b", "/a")
    assert seen["headers"] == {"HTTP_HOST": "x", "HTTP_PATH_INFO": "/c"}
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
    [trusted], [untrusted] = (
        echo(service, request("/a", *fields)),
        echo(prefixed, request("/prefix/a", *fields)),
    )
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


def test_environ_of_each_request() -> None:
    """PEP 3333: each request has its own environ, which the application can change."""
    with (
        start(app=f"{APP}:clear_environ") as running,
        connect(running.http_port) as first,
        connect(running.http_port) as second,
    ):
        for client in (first, second, first):
            for body in ("hello", "world"):
                client.sendall(
                    request("/a?b", "Content-Length: 5", method="POST", body=body.encode())
                )
                [reply] = read_replies(client.recv(2**16))
                seen = json.loads(reply.body)

                assert seen["body"] == body
                assert seen["uri"] == "/a?b"
                assert seen["headers"] == {"HTTP_HOST": "x", "CONTENT_LENGTH": "5"}
                assert seen["port"] == str(client.getsockname()[1])


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
    assert [(request["uri"], request["body"]) for request in seen] == [
        ("/a", expected),
        ("/a", expected),
        ("/b", ""),
    ]
    assert seen[0]["headers"]["HTTP_UPGRADE"] == "h2c"


@pytest.mark.skipif(not shutil.which("javac"), reason="no JDK: test_upgrade sends the same fields")
def test_upgrade_of_the_jdk(service: Running) -> None:
    """RFC 9110, 7.8: the HTTP client of the JDK, which requests an upgrade to HTTP/2, gets responses over HTTP/1.1."""
    command = [
        "java",
        str(Path(__file__).with_name("Post.java")),
        f"http://127.0.0.1:{service.http_port}/jdk",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    replies = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [reply[:2] for reply in replies] == [["200", "HTTP_1_1"]] * 2
    seen = [json.loads(reply[2]) for reply in replies]
    assert [request["body"] for request in seen] == ["hello" * 1000] * 2
    assert seen[0]["headers"]["HTTP_UPGRADE"] == "h2c"


def test_pipelined_requests(service: Running) -> None:
    """RFC 9112, 9.3.2: pipelined requests are served in order."""
    targets = [f"/?{number}" for number in range(500)]
    seen = echo(service, b"".join(map(request, targets)))
    assert [request["uri"] for request in seen] == targets


# The response


@pytest.mark.parametrize(
    ("path", "body"),
    [("/generate", b"abc"), ("/write", b"abcd"), ("/list", b"abc"), ("/empty", b"")],
)
def test_framing(service: Running, path: str, body: bytes) -> None:
    """RFC 9112, 6: a body of unknown length is chunked in HTTP/1.1, and ends with the connection in HTTP/1.0."""
    is_known = path in ("/list", "/empty")
    reply, old = get(service, path), get(service, path, version="1.0")
    assert reply.body == old.body == body
    assert reply.headers["Transfer-Encoding"] == (None if is_known else "chunked")
    assert (
        reply.headers["Content-Length"]
        == old.headers["Content-Length"]
        == (str(len(body)) if is_known else None)
    )
    assert old.headers["Transfer-Encoding"] is None
    assert keeps_alive(service, path)
    assert keeps_alive(service, path, "1.0") == is_known
