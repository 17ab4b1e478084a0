"""HTTP: compression, limits, methods, malformed bodies and chunked bodies (R18-R21)."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from conformance.client import Http, Reply
from conformance.target import SMALL, Target, head, refusal, success
from tests.service import wires
from tests.service.cases import ACCEPTED, CONTENT_TYPES, INSTEAD, NO_JSON, NOT_ACCEPTED, UNKNOWN_CODINGS

BODY = json.dumps({"inputs": [head(*SMALL)], "outputs": [{"name": "fp32_out"}]}).encode()
FAILING = json.dumps({"inputs": [head("fail_in", "BYTES", [1], ["no"])]}).encode()
LARGE = json.dumps({"inputs": [head("bytes_in", "BYTES", [1], ["x" * 2000])], "outputs": [{"name": "bytes_out"}]})
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.fixture
def infer(target: Target) -> str:
    """Return the path of infer."""
    return f"{target.path}/infer"


def answered(reply: Reply) -> None:
    """Check that the reply is the response to BODY."""
    assert success(reply).json["outputs"][0]["data"] == SMALL[3]


def works(http: Http, infer: str) -> None:
    """Check that the connection is open and accepts the next request."""
    assert http.connection.sock is not None, "the server closed the connection"
    answered(http.post(infer, BODY))


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_content_type_is_ignored(http: Http, infer: str, content_type: str | None) -> None:
    """R18: the body is read regardless of its Content-Type, or without one."""
    answered(http.post(infer, BODY, {"Content-Type": content_type}))


@pytest.mark.parametrize(
    "coding", ["identity", "", *(pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS)]
)
def test_content_codings(http: Http, infer: str, coding: str) -> None:
    """R18: gzip, deflate with zlib framing, and identity are understood."""
    answered(http.post(infer, CODINGS.get(coding, bytes)(BODY), {"Content-Encoding": coding}))


@pytest.mark.needs("gzip")
def test_gzip_with_several_members(http: Http, infer: str) -> None:
    """R18: a gzip body may have several members."""
    body = gzip.compress(BODY[:20]) + gzip.compress(BODY[20:])
    answered(http.post(infer, body, {"Content-Encoding": "gzip"}))


@pytest.mark.parametrize("coding", UNKNOWN_CODINGS)
def test_unknown_codings(http: Http, infer: str, coding: str) -> None:
    """R18: an unknown coding, also in a list, is a 415, and the connection stays open."""
    refusal(http.post(infer, BODY, {"Content-Encoding": coding}), 415)
    works(http, infer)


CORRUPT: list[Callable[[bytes], bytes]] = [
    lambda body: b"",
    lambda body: BODY,
    lambda body: body[:-1],
    lambda body: body[:12],
    lambda body: body[: len(body) // 2],
    lambda body: body[:-4] + b"\0\0\0\0",
    lambda body: body + b"trailing",
    lambda body: body[:20] + b"\xff" * 8 + body[28:],
]  # fmt: skip
DAMAGES = ["empty", "plain", "one byte short", "12 bytes", "half", "another checksum", "trailing bytes", "changed"]


@pytest.mark.parametrize("coding", [pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS])
@pytest.mark.parametrize("damage", CORRUPT, ids=DAMAGES)
def test_corrupt_compressed_body(http: Http, infer: str, coding: str, damage: Callable[[bytes], bytes]) -> None:
    """R18: a body that does not match its Content-Encoding is a 400, and the connection stays open."""
    refusal(http.post(infer, damage(CODINGS[coding](BODY)), {"Content-Encoding": coding}), 400)
    works(http, infer)


@pytest.mark.needs("gzip")
def test_wrong_content_encoding(http: Http, infer: str) -> None:
    """R18: a gzip body declared as deflate is rejected, and vice versa."""
    refusal(http.post(infer, gzip.compress(BODY), {"Content-Encoding": "deflate"}), 400)
    refusal(http.post(infer, zlib.compress(BODY), {"Content-Encoding": "gzip"}), 400)


def coded(accepted: str) -> Any:
    """Return an Accept-Encoding case that needs a server that compresses responses with its coding."""
    coding = "gzip" if "gzip" in accepted.lower() else "deflate"
    return pytest.param(accepted, marks=pytest.mark.needs(f"answers in {coding}"))


@pytest.mark.parametrize("accepted", [coded(each) for each in ACCEPTED])
def test_compressed_response(http: Http, infer: str, accepted: str) -> None:
    """R18: a JSON response of at least 1 KiB is compressed if the client accepts it."""
    reply = success(http.post(infer, LARGE, {"Accept-Encoding": accepted}))
    assert reply.headers["Content-Encoding"] in [*CODINGS]
    decompress = gzip.decompress if reply.headers["Content-Encoding"] == "gzip" else zlib.decompress
    plain = decompress(reply.data)
    assert json.loads(plain)["outputs"][0]["data"] == ["x" * 2000]
    assert len(reply.data) < 1000


@pytest.mark.parametrize("accepted", NOT_ACCEPTED)
def test_uncompressed_response(http: Http, infer: str, accepted: str | None) -> None:
    """R18: nothing is compressed if the client does not accept it."""
    with http.line() as line:
        headers = {} if accepted is None else {"Accept_Encoding": accepted}
        line.send(line.request(infer, LARGE.encode(), **headers))
        reply = line.reply()
    assert "Content-Encoding" not in success(reply).headers
    assert reply.json["outputs"][0]["data"] == ["x" * 2000]


def test_only_inferences_are_compressed(target: Target, http: Http, infer: str) -> None:
    """R18: metadata and errors are not compressed, because tritonclient decompresses only inference responses."""
    accepted = {"Accept-Encoding": "gzip, deflate"}
    unknown = json.dumps({"inputs": [head(*SMALL)], "outputs": [{"name": "🌷" * 500}]})
    for reply in (http.get(target.path, accepted), http.post(infer, unknown, accepted)):
        assert "Content-Encoding" not in reply.headers
        assert reply.json


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", path) for path in ["/v2", "/v2/health/live", "/v2/health/ready", "{model}", "{model}/ready"]),
        *((method, "{model}/infer") for method in ["GET", "PUT", "DELETE", "PATCH"]),
        ("DELETE", "{model}"),
        ("PUT", "/v2"),
    ],
)
def test_method_not_allowed(target: Target, http: Http, infer: str, method: str, path: str) -> None:
    """R19: a method that a path does not support is a 405 in JSON with Allow, and the connection stays open."""
    reply = http.open(method, path.replace("{model}", target.path), BODY if method == "POST" else b"")
    refusal(reply, 405)
    allowed = {each.strip() for each in reply.headers.get("Allow", "").split(",")}
    assert ("POST" if path.endswith("infer") else "GET") in allowed
    assert method not in allowed
    works(http, infer)


def test_head_of_infer(http: Http, infer: str) -> None:
    """R19: HEAD of infer is a 405 without a body."""
    reply = http.open("HEAD", infer)
    refusal(reply, 405)
    assert reply.data == b""
    works(http, infer)


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
def test_unknown_path(http: Http, infer: str, method: str, path: str) -> None:
    """R19: an unknown path is a 404 in JSON, and the connection stays open."""
    refusal(http.open(method, path, BODY if method == "POST" else b""), 404)
    works(http, infer)


def padded(size: int) -> bytes:
    """Return the valid request, padded with spaces to `size` bytes."""
    return BODY + b" " * (size - len(BODY))


@pytest.mark.parametrize(
    "coding", ["identity", *(pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS)]
)
def test_body_limit(http: Http, infer: str, limit: int, coding: str) -> None:
    """R19: a body of exactly the limit is accepted. One more byte, after decompression, is a 413."""
    code = CODINGS.get(coding, bytes)
    answered(http.post(infer, code(padded(limit)), {"Content-Encoding": coding}))
    assert str(limit) in refusal(http.post(infer, code(padded(limit + 1)), {"Content-Encoding": coding}), 413)
    answered(http.post(infer, BODY))


@pytest.mark.parametrize("coding", [pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS])
def test_decompression_bombs(http: Http, infer: str, limit: int, coding: str) -> None:
    """R19: a body that decompresses to far more than the limit is a 413."""
    encoder = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    block = b" " * 2**20
    blocks = min(100 * limit, limit + 2**27) // len(block) + 1
    bomb = b"".join(encoder.compress(block) for _ in range(blocks)) + encoder.flush()
    refusal(http.post(infer, bomb, {"Content-Encoding": coding}), 413)
    answered(http.post(infer, BODY))


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
@pytest.mark.parametrize("times", [1, 8])
def test_client_sends_too_much(http: Http, infer: str, limit: int, times: int, chunked: bool) -> None:
    """R19: a client that keeps sending too large a body can read the 413."""
    blocks = [padded(limit + 1), *[b" " * min(limit, 2**20)] * (times - 1)]
    size = sum(map(len, blocks))
    reply = http.open("POST", infer, iter(blocks), None if chunked else {"Content-Length": str(size)}, chunked)
    assert str(limit) in refusal(reply, 413)
    answered(http.post(infer, BODY))


def test_client_announces_too_much(http: Http, infer: str, limit: int) -> None:
    """R19: a client that announces too large a body and waits receives a 413."""
    with http.line() as line:
        line.send(line.head("POST", infer, Content_Length=99_999_999_999))
        refusal(line.reply(), 413)
    answered(http.post(infer, BODY))


@pytest.mark.parametrize("accept", [None, "text/html, application/xml;q=0.9"])
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "{model}/infer", b"{", 400),
        ("POST", "{model}/infer", b"[]", 400),
        ("POST", "{model}/infer", b"{}", 400),
        ("POST", "{model}/infer", BODY.replace(b"[1.5, -2.0]", b'["a"]'), 400),
        ("POST", "{model}/infer", FAILING, 500),
        ("GET", "/v2/models/no-such-model", b"", 404),
        ("POST", "/v2/models/no-such-model/infer", BODY, 404),
        ("GET", "/v2/no-such-path", b"", 404),
        ("POST", "/v2", BODY, 405),
        ("GET", "{model}/infer", b"", 405),
    ],
)
def test_errors_are_json(
    target: Target, http: Http, method: str, path: str, body: bytes, status: int, accept: str | None
) -> None:
    """R19: an error is JSON with a message and its status, regardless of the Accept header."""
    wires.refusal(http.open(method, path.replace("{model}", target.path), body, {"Accept": accept}), status)


BAD_BODIES = [
    *(body for body in NO_JSON if body),
    *(text.encode() for text in INSTEAD),
    b"\xff\xfe{\0}\0",
    BODY[:-1],
    BODY[:9],
]


@pytest.mark.parametrize("body", [b"", *BAD_BODIES])
def test_invalid_bodies(http: Http, infer: str, body: bytes) -> None:
    """R20: a body that is empty, truncated, not JSON or not an object is a 400, and the connection stays open."""
    refusal(http.post(infer, body), 400)
    works(http, infer)


@pytest.mark.parametrize("octets", ["ff", "c328", "eda080", "f8888080", "c0af"])
@pytest.mark.parametrize("place", ["name", "data", "member"])
def test_json_with_invalid_utf8(http: Http, infer: str, place: str, octets: str) -> None:
    """R20: JSON with strings that are not UTF-8 is rejected, wherever they are."""
    tensor = head("bytes_in", "BYTES", [1], ["@" if place == "data" else "x"])
    envelope = {
        "inputs": [{**tensor, "name": "@" if place == "name" else "bytes_in"}],
        "@" if place == "member" else "x": 1,
    }
    refusal(http.post(infer, json.dumps(envelope).encode().replace(b"@", bytes.fromhex(octets))), 400)
    works(http, infer)


def nested(levels: int, opening: str, closing: str) -> bytes:
    """Return the valid request with an unknown member of `levels` levels."""
    return b'{"extra": %s, %s' % ((opening * levels + "1" + closing * levels).encode(), BODY[1:])


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")], ids=["lists", "objects"])
def test_nesting_limit(http: Http, infer: str, opening: str, closing: str) -> None:
    """R20: JSON may be nested 64 levels deep, counted from the root. Deeper JSON is a 400."""
    answered(http.post(infer, nested(60, opening, closing)))
    answered(http.post(infer, nested(63, opening, closing)))
    refusal(http.post(infer, nested(64, opening, closing)), 400)
    works(http, infer)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting(http: Http, infer: str, opening: str, closing: str, closed: bool) -> None:
    """R20: JSON nested 100,000 levels deep is a 400, and the connection stays open."""
    refusal(http.post(infer, nested(100_000, opening, closing if closed else "")), 400)
    works(http, infer)


def test_deeply_nested_data(http: Http, infer: str) -> None:
    """R20: data may be nested 60 levels deep, but not 100,000."""
    for levels, status in ((60, 200), (100_000, 400)):
        tensor = json.dumps(head("fp32_in", "FP32", [1], [0])).replace("[0]", "[" * levels + "1.5" + "]" * levels)
        reply = http.post(infer, f'{{"inputs": [{tensor}], "outputs": [{{"name": "fp32_out"}}]}}')
        if status == 200:
            success(reply)
        else:
            refusal(reply, status)
    works(http, infer)


@pytest.mark.parametrize("sizes", [[1], [7, 1000], [1000]])
def test_chunked_body(http: Http, infer: str, sizes: list[int]) -> None:
    """R21: a chunked body is read completely, regardless of the chunk sizes."""
    pieces: list[bytes] = []
    rest = BODY
    while rest:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(rest[:size])
        rest = rest[size:]
    answered(http.open("POST", infer, iter(pieces), chunked=True))
    works(http, infer)


def test_chunks_with_extensions_and_trailers(http: Http, infer: str) -> None:
    """R21: chunk extensions and trailers are ignored."""
    with http.line() as line:
        half = len(BODY) // 2
        line.send(line.head("POST", infer, Transfer_Encoding="chunked"))
        line.send(b"%x;name=value\r\n%s\r\n%X\r\n%s\r\n" % (half, BODY[:half], len(BODY) - half, BODY[half:]))
        line.send(b"0\r\nX-Trailer: yes\r\n\r\n")
        answered(line.reply())
        line.send(line.request(infer, BODY))
        answered(line.reply())


@pytest.mark.parametrize(
    "chunks", [b'5\r\n{"inp', b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"2\r\n{}xx0\r\n\r\n"]
)
def test_malformed_chunks(http: Http, infer: str, chunks: bytes) -> None:
    """R20: truncated or malformed chunks are rejected, and the next connection works."""
    with http.line() as line:
        line.send(line.head("POST", infer, Transfer_Encoding="chunked"), chunks)
        line.end()
        refusal(line.reply(), 400)
    answered(http.post(infer, BODY))


@pytest.mark.parametrize("sent", [0, 1, len(BODY) // 2, len(BODY) - 1, len(BODY)])
def test_body_shorter_than_content_length(http: Http, infer: str, sent: int) -> None:
    """R20: a body that is shorter than its Content-Length is a 400, even if it is complete JSON."""
    with http.line() as line:
        line.send(line.head("POST", infer, Content_Length=len(BODY) + (sent == len(BODY))), BODY[:sent])
        line.end()
        refusal(line.reply(), 400)
    answered(http.post(infer, BODY))


def test_client_disconnects(http: Http, infer: str) -> None:
    """R20: clients that disconnect during a body or while waiting do not affect others."""
    for _ in range(20):
        with http.line() as line:
            line.send(line.head("POST", infer, Content_Length=len(BODY)), BODY[:20])
        with http.line() as line:
            line.send(line.request(infer, BODY))
    answered(http.post(infer, BODY))


def test_body_in_single_bytes(http: Http, infer: str) -> None:
    """R21: a body that arrives one byte at a time is read completely."""
    with http.line() as line:
        for octet in line.request(infer, BODY):
            line.send(bytes([octet]))
        answered(line.reply())


def test_pipelined_requests(http: Http, infer: str) -> None:
    """R21: pipelined requests receive their responses in order, including invalid requests."""
    bodies = [BODY, b"{", BODY, b"[]", BODY, LARGE.encode(), BODY]
    with http.line() as line:
        line.send(*(line.request(infer, body) for body in bodies))
        for body in bodies:
            reply = line.reply()
            if body == BODY:
                answered(reply)
            elif body == LARGE.encode():
                success(reply)
            else:
                refusal(reply, 400)


def test_pipelined_requests_without_body(http: Http, infer: str) -> None:
    """R21: pipelined requests with and without a body receive their responses in order."""
    with http.line() as line:
        get = line.head("GET", "/v2/health/live")
        line.send(get, line.request(infer, BODY), get, line.request("/v2/none", BODY), get)
        assert [line.reply().status_code for _ in range(5)] == [200, 200, 200, 404, 200]


def test_get_with_body(http: Http, infer: str) -> None:
    """R21: the body of a GET is skipped and not parsed as the next request."""
    with http.line() as line:
        line.send(line.head("GET", "/v2/health/live", Content_Length=len(BODY)), BODY, line.request(infer, BODY))
        success(line.reply())
        answered(line.reply())


@pytest.mark.needs("gzip")
def test_compressed_chunked_body(http: Http, infer: str) -> None:
    """R18: a body may be both compressed and chunked."""
    body = gzip.compress(BODY)
    answered(http.open("POST", infer, iter([body[:9], body[9:]]), {"Content-Encoding": "gzip"}, chunked=True))
    works(http, infer)


def test_expect_100_continue(http: Http, infer: str) -> None:
    """R21: a client that waits for 100 Continue before it sends its body receives it."""
    with http.line() as line:
        line.send(line.head("POST", infer, Content_Length=len(BODY), Expect="100-continue"))
        assert line.interim().startswith(b"HTTP/1.1 100")
        line.send(BODY)
        answered(line.reply())


def test_expect_100_continue_with_large_body(http: Http, infer: str, limit: int) -> None:
    """R19: a client that waits for 100 Continue with too large a body receives a 413."""
    with http.line() as line:
        line.send(line.head("POST", infer, Content_Length=limit + 1, Expect="100-continue"))
        reply = line.reply()  # http.client skips an interim response
        refusal(reply, 413)
    answered(http.post(infer, BODY))


def test_many_requests_on_one_connection(http: Http, infer: str) -> None:
    """R20: one connection accepts a hundred valid and invalid requests."""
    http.get("/v2/health/live")
    first = http.connection.sock
    for index in range(100):
        reply = http.post(infer, BODY if index % 2 else b"[]")
        if index % 2:
            answered(reply)
        else:
            refusal(reply, 400)
    assert http.connection.sock is first


def test_connection_close(http: Http, infer: str) -> None:
    """R21: with Connection: close, the server closes the connection after the response."""
    with http.line() as line:
        line.send(line.request(infer, BODY, Connection="close"))
        answered(line.reply())
        assert line.ended()


def test_http_1_0(http: Http, infer: str) -> None:
    """R21: an HTTP/1.0 client receives a response, and its connection is closed."""
    with http.line() as line:
        line.send(line.request(infer, BODY).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        answered(line.reply())
        assert line.ended()


def test_connection_without_request(http: Http, infer: str) -> None:
    """R20: connections that are closed without a request do not affect others."""
    for _ in range(20):
        with http.line() as line:
            line.end()
            assert line.ended()
    answered(http.post(infer, BODY))
