"""HTTP: compression, limits, methods, malformed bodies and chunked bodies (R18-R21)."""

from __future__ import annotations

import gzip
import json

import pytest

from oip_conformance.client import Http
from oip_conformance.http_requests import LARGE_BODY, VALID_BODY, check_echo, check_next_request
from oip_conformance.inputs import json_input
from oip_conformance.outcomes import check_error, check_success
from oip_conformance.target import Target

FAILING_REQUEST = json.dumps({"inputs": [json_input("fail_in", "BYTES", [1], ["no"])]}).encode()


def body_for(method: str) -> bytes:
    """Return the valid request for POST. Other methods have no body."""
    return VALID_BODY if method == "POST" else b""


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2"),
        ("POST", "/v2/health/live"),
        ("POST", "/v2/health/ready"),
        ("POST", "{model}"),
        ("POST", "{model}/ready"),
        ("GET", "{model}/infer"),
        ("PUT", "{model}/infer"),
        ("DELETE", "{model}/infer"),
        ("PATCH", "{model}/infer"),
        ("DELETE", "{model}"),
        ("PUT", "/v2"),
    ],
)
def test_method_not_allowed(
    target: Target, http: Http, infer_path: str, method: str, path: str
) -> None:
    """R19: an unsupported method is rejected with 405 in JSON and with Allow, and the connection
    stays open.
    """
    full_path = path.replace("{model}", target.path)
    reply = http.open(method, full_path, body_for(method))
    check_error(reply, 405)

    supported_method = "POST" if path.endswith("infer") else "GET"
    allow = reply.headers.get("Allow", "")
    allowed_methods = {name.strip() for name in allow.split(",")}
    assert supported_method in allowed_methods
    assert method not in allowed_methods
    check_next_request(http, infer_path)


def test_head_of_infer(http: Http, infer_path: str) -> None:
    """R19: HEAD on the infer path is rejected with 405 without a body."""
    reply = http.open("HEAD", infer_path)
    check_error(reply, 405)
    assert reply.data == b""
    check_next_request(http, infer_path)


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/V2",
        "/v2/health",
        "/v2/models//infer",
        "/v2//health/live",
        "/v2/models/a/b/c",
        "/v2/%ff",
        "/../etc/passwd",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_path(http: Http, infer_path: str, method: str, path: str) -> None:
    """R19: an unknown path is rejected with 404 in JSON, and the connection stays open."""
    reply = http.open(method, path, body_for(method))
    check_error(reply, 404)
    check_next_request(http, infer_path)


@pytest.mark.parametrize("accept", [None, "text/html, application/xml;q=0.9"])
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "{model}/infer", b"{", 400),
        ("POST", "{model}/infer", b"[]", 400),
        ("POST", "{model}/infer", b"{}", 400),
        ("POST", "{model}/infer", VALID_BODY.replace(b"[1.5, -2.0]", b'["a"]'), 400),
        ("POST", "{model}/infer", FAILING_REQUEST, 500),
        ("GET", "/v2/models/no-such-model", b"", 404),
        ("POST", "/v2/models/no-such-model/infer", VALID_BODY, 404),
        ("GET", "/v2/no-such-path", b"", 404),
        ("POST", "/v2", VALID_BODY, 405),
        ("GET", "{model}/infer", b"", 405),
    ],
)
def test_errors_are_json(
    target: Target, http: Http, method: str, path: str, body: bytes, status: int, accept: str | None
) -> None:
    """R19: an error is JSON with a message and its status, regardless of the Accept header."""
    full_path = path.replace("{model}", target.path)
    reply = http.open(method, full_path, body, {"Accept": accept})
    check_error(reply, status)
    assert reply.mimetype == "application/json", f"expected application/json, got {reply.mimetype}"
    document = reply.json
    text = document.get("error") if isinstance(document, dict) else None
    assert isinstance(text, str), f'expected {{"error": "..."}}, got {reply}'
    assert "Traceback" not in text, f"expected no traceback, got {reply}"


def test_client_disconnects(http: Http, infer_path: str) -> None:
    """R20: clients that disconnect while they send a body or wait for a response do not affect
    others.
    """
    for _ in range(20):
        with http.open_raw() as connection:
            head = connection.head("POST", infer_path, Content_Length=len(VALID_BODY))
            connection.send(head, VALID_BODY[:20])
        with http.open_raw() as connection:
            connection.send(connection.request(infer_path, VALID_BODY))
    check_echo(http.post(infer_path, VALID_BODY))


def test_body_in_single_bytes(http: Http, infer_path: str) -> None:
    """R21: a body that arrives one byte at a time is read completely."""
    with http.open_raw() as connection:
        for octet in connection.request(infer_path, VALID_BODY):
            connection.send(bytes([octet]))
        check_echo(connection.reply())


def test_pipelined_requests(http: Http, infer_path: str) -> None:
    """R21: pipelined requests receive their responses in order, including invalid requests."""
    bodies = [VALID_BODY, b"{", VALID_BODY, b"[]", VALID_BODY, LARGE_BODY, VALID_BODY]
    with http.open_raw() as connection:
        requests = b""
        for body in bodies:
            requests += connection.request(infer_path, body)
        connection.send(requests)
        for body in bodies:
            reply = connection.reply()
            if body == VALID_BODY:
                check_echo(reply)
            elif body == LARGE_BODY:
                check_success(reply)
            else:
                check_error(reply, 400)


def test_pipelined_requests_without_body(http: Http, infer_path: str) -> None:
    """R21: pipelined requests with and without a body receive their responses in order."""
    with http.open_raw() as connection:
        get = connection.head("GET", "/v2/health/live")
        infer = connection.request(infer_path, VALID_BODY)
        unknown = connection.request("/v2/none", VALID_BODY)
        connection.send(get, infer, get, unknown, get)
        statuses = [connection.reply().status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 404, 200]


def test_get_with_body(http: Http, infer_path: str) -> None:
    """R21: the body of a GET is skipped and not parsed as the next request."""
    with http.open_raw() as connection:
        head = connection.head("GET", "/v2/health/live", Content_Length=len(VALID_BODY))
        infer = connection.request(infer_path, VALID_BODY)
        connection.send(head, VALID_BODY, infer)
        check_success(connection.reply())
        check_echo(connection.reply())


@pytest.mark.needs("gzip")
def test_compressed_chunked_body(http: Http, infer_path: str) -> None:
    """R18: a body may be both compressed and chunked."""
    body = gzip.compress(VALID_BODY)
    pieces = [body[:9], body[9:]]
    headers = {"Content-Encoding": "gzip"}
    reply = http.open("POST", infer_path, pieces, headers, chunked=True)
    check_echo(reply)
    check_next_request(http, infer_path)


def test_expect_100_continue(http: Http, infer_path: str) -> None:
    """R21: a client that waits for 100 Continue before it sends its body receives it."""
    with http.open_raw() as connection:
        fields = {"Content_Length": len(VALID_BODY), "Expect": "100-continue"}
        connection.send(connection.head("POST", infer_path, **fields))
        assert connection.interim_status_line().startswith(b"HTTP/1.1 100")
        connection.send(VALID_BODY)
        check_echo(connection.reply())


def test_expect_100_continue_with_large_body(http: Http, infer_path: str, limit: int) -> None:
    """R19: a client that waits for 100 Continue before a body over the limit receives 413."""
    with http.open_raw() as connection:
        fields = {"Content_Length": limit + 1, "Expect": "100-continue"}
        connection.send(connection.head("POST", infer_path, **fields))
        reply = connection.reply()  # http.client skips an interim response
        check_error(reply, 413)
    check_echo(http.post(infer_path, VALID_BODY))


def test_many_requests_on_one_connection(http: Http, infer_path: str) -> None:
    """R20: one connection accepts a hundred valid and invalid requests."""
    http.get("/v2/health/live")
    socket = http.connection.sock
    for _ in range(50):
        check_error(http.post(infer_path, b"[]"), 400)
        check_echo(http.post(infer_path, VALID_BODY))
    assert http.connection.sock is socket


def test_connection_close(http: Http, infer_path: str) -> None:
    """R21: with Connection: close, the server closes the connection after the response."""
    with http.open_raw() as connection:
        connection.send(connection.request(infer_path, VALID_BODY, Connection="close"))
        check_echo(connection.reply())
        assert connection.is_closed()


def test_http_1_0(http: Http, infer_path: str) -> None:
    """R21: an HTTP/1.0 client receives a response, and its connection is closed."""
    with http.open_raw() as connection:
        request = connection.request(infer_path, VALID_BODY)
        connection.send(request.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        check_echo(connection.reply())
        assert connection.is_closed()


def test_connection_without_request(http: Http, infer_path: str) -> None:
    """R20: connections that are closed without a request do not affect others."""
    for _ in range(20):
        with http.open_raw() as connection:
            connection.shutdown_write()
            assert connection.is_closed()
    check_echo(http.post(infer_path, VALID_BODY))
