"""Group H: bodies that are too large, malformed or chunked."""

from __future__ import annotations

import json
import zlib

import pytest

from oip_conformance.client import Http
from oip_conformance.http_requests import BODY, CODINGS, check_echo, check_next_request
from oip_conformance.inputs import json_input
from oip_conformance.outcomes import error_message, success
from oip_conformance.values import INSTEAD, NO_JSON


def padded(size: int) -> bytes:
    """Return the valid request padded with spaces to `size` bytes."""
    return BODY + b" " * (size - len(BODY))


@pytest.mark.parametrize(
    "coding", ["identity", *(pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS)]
)
def test_body_limit(http: Http, infer_path: str, limit: int, coding: str) -> None:
    """R19: a decompressed body of exactly the limit is accepted. A larger one is rejected with 413."""
    code = CODINGS.get(coding, bytes)
    check_echo(http.post(infer_path, code(padded(limit)), {"Content-Encoding": coding}))
    assert str(limit) in error_message(
        http.post(infer_path, code(padded(limit + 1)), {"Content-Encoding": coding}), 413
    )
    check_echo(http.post(infer_path, BODY))


@pytest.mark.parametrize(
    "coding", [pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS]
)
def test_decompression_bombs(http: Http, infer_path: str, limit: int, coding: str) -> None:
    """R19: a body that decompresses to far more than the limit is rejected with 413."""
    encoder = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    block = b" " * 2**20
    blocks = min(100 * limit, limit + 2**27) // len(block) + 1
    bomb = b"".join(encoder.compress(block) for _ in range(blocks)) + encoder.flush()
    error_message(http.post(infer_path, bomb, {"Content-Encoding": coding}), 413)
    check_echo(http.post(infer_path, BODY))


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
@pytest.mark.parametrize("times", [1, 8])
def test_client_sends_too_much(
    http: Http, infer_path: str, limit: int, times: int, chunked: bool
) -> None:
    """R19: a client that continues to send a body over the limit receives 413."""
    blocks = [padded(limit + 1), *[b" " * min(limit, 2**20)] * (times - 1)]
    size = sum(map(len, blocks))
    reply = http.open(
        "POST",
        infer_path,
        iter(blocks),
        None if chunked else {"Content-Length": str(size)},
        chunked,
    )
    assert str(limit) in error_message(reply, 413)
    check_echo(http.post(infer_path, BODY))


def test_client_announces_too_much(http: Http, infer_path: str, limit: int) -> None:
    """R19: a client that announces a body over the limit and then waits receives 413."""
    with http.open_raw() as line:
        line.send(line.head("POST", infer_path, Content_Length=99_999_999_999))
        error_message(line.reply(), 413)
    check_echo(http.post(infer_path, BODY))


BAD_BODIES = [
    *(body for body in NO_JSON if body),
    *(text.encode() for text in INSTEAD),
    b"\xff\xfe{\0}\0",
    BODY[:-1],
    BODY[:9],
]


@pytest.mark.parametrize("body", [b"", *BAD_BODIES])
def test_invalid_bodies(http: Http, infer_path: str, body: bytes) -> None:
    """R20: a body that is empty, truncated or not a JSON object is rejected with 400, and the connection stays open."""
    error_message(http.post(infer_path, body), 400)
    check_next_request(http, infer_path)


@pytest.mark.parametrize("octets", ["ff", "c328", "eda080", "f8888080", "c0af"])
@pytest.mark.parametrize("place", ["name", "data", "member"])
def test_json_with_invalid_utf8(http: Http, infer_path: str, place: str, octets: str) -> None:
    """R20: JSON with strings that are not UTF-8 is rejected, wherever they are."""
    tensor = json_input("bytes_in", "BYTES", [1], ["@" if place == "data" else "x"])
    envelope = {
        "inputs": [{**tensor, "name": "@" if place == "name" else "bytes_in"}],
        "@" if place == "member" else "x": 1,
    }
    error_message(
        http.post(infer_path, json.dumps(envelope).encode().replace(b"@", bytes.fromhex(octets))),
        400,
    )
    check_next_request(http, infer_path)


def nested(levels: int, opening: str, closing: str) -> bytes:
    """Return the valid request with an unknown member that is nested `levels` levels deep."""
    return b'{"extra": %s, %s' % ((opening * levels + "1" + closing * levels).encode(), BODY[1:])


@pytest.mark.parametrize(
    ("opening", "closing"), [("[", "]"), ('{"a": ', "}")], ids=["lists", "objects"]
)
def test_nesting_limit(http: Http, infer_path: str, opening: str, closing: str) -> None:
    """R20: JSON may be nested 64 levels deep, counted from the root. Deeper JSON is rejected with 400."""
    check_echo(http.post(infer_path, nested(60, opening, closing)))
    check_echo(http.post(infer_path, nested(63, opening, closing)))
    error_message(http.post(infer_path, nested(64, opening, closing)), 400)
    check_next_request(http, infer_path)


@pytest.mark.parametrize(
    ("opening", "closing"), [("[", "]"), ('{"a": ', "}")], ids=["lists", "objects"]
)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("levels", [1100, 100_000])
def test_deep_nesting(
    http: Http, infer_path: str, opening: str, closing: str, levels: int, closed: bool
) -> None:
    """R20: JSON nested thousands of levels deep is rejected with 400, and the connection stays open."""
    error_message(http.post(infer_path, nested(levels, opening, closing if closed else "")), 400)
    check_next_request(http, infer_path)


@pytest.mark.parametrize(
    "text", ["[" * 500, '"' + "[{" * 50, "\\" + "[" * 100, '\\"' + "]" * 100, "{[" * 100 + "\\"]
)
def test_brackets_in_text(http: Http, infer_path: str, text: str) -> None:
    """R20: brackets in strings do not count as nesting."""
    extra = json.dumps({"extra": text, text: [[text]]})[:-1]
    check_echo(http.post(infer_path, f"{extra}, {BODY[1:].decode()}"))


def test_deeply_nested_data(http: Http, infer_path: str) -> None:
    """R20: data may be nested 60 levels deep, but not 100,000."""
    for levels, status in ((60, 200), (100_000, 400)):
        tensor = json.dumps(json_input("fp32_in", "FP32", [1], [0])).replace(
            "[0]", "[" * levels + "1.5" + "]" * levels
        )
        reply = http.post(
            infer_path, f'{{"inputs": [{tensor}], "outputs": [{{"name": "fp32_out"}}]}}'
        )
        if status == 200:
            success(reply)
        else:
            error_message(reply, status)
    check_next_request(http, infer_path)


@pytest.mark.parametrize("sizes", [[1], [7, 1000], [1000]])
def test_chunked_body(http: Http, infer_path: str, sizes: list[int]) -> None:
    """R21: a chunked body is read completely, regardless of the chunk sizes."""
    pieces: list[bytes] = []
    rest = BODY
    while rest:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(rest[:size])
        rest = rest[size:]
    check_echo(http.open("POST", infer_path, iter(pieces), chunked=True))
    check_next_request(http, infer_path)


def test_chunks_with_extensions_and_trailers(http: Http, infer_path: str) -> None:
    """R21: chunk extensions and trailers are ignored."""
    with http.open_raw() as line:
        half = len(BODY) // 2
        line.send(line.head("POST", infer_path, Transfer_Encoding="chunked"))
        line.send(
            b"%x;name=value\r\n%s\r\n%X\r\n%s\r\n"
            % (half, BODY[:half], len(BODY) - half, BODY[half:])
        )
        line.send(b"0\r\nX-Trailer: yes\r\n\r\n")
        check_echo(line.reply())
        line.send(line.request(infer_path, BODY))
        check_echo(line.reply())


@pytest.mark.parametrize(
    "chunks",
    [b'5\r\n{"inp', b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"2\r\n{}xx0\r\n\r\n"],
)
def test_malformed_chunks(http: Http, infer_path: str, chunks: bytes) -> None:
    """R20: truncated or malformed chunks are rejected, and the next connection works."""
    with http.open_raw() as line:
        line.send(line.head("POST", infer_path, Transfer_Encoding="chunked"), chunks)
        line.shutdown_write()
        error_message(line.reply(), 400)
    check_echo(http.post(infer_path, BODY))


@pytest.mark.parametrize("sent", [0, 1, len(BODY) // 2, len(BODY) - 1, len(BODY)])
def test_body_shorter_than_content_length(http: Http, infer_path: str, sent: int) -> None:
    """R20: a body that is shorter than its Content-Length is rejected with 400, even if it is complete JSON."""
    with http.open_raw() as line:
        line.send(
            line.head("POST", infer_path, Content_Length=len(BODY) + (sent == len(BODY))),
            BODY[:sent],
        )
        line.shutdown_write()
        error_message(line.reply(), 400)
    check_echo(http.post(infer_path, BODY))
