"""Group H: bodies that are too large, malformed or chunked."""

from __future__ import annotations

import itertools
import json
import zlib

import pytest

from oip_conformance.client import Http
from oip_conformance.http_requests import (
    CODINGS,
    SUPPORTED_CODINGS,
    VALID_BODY,
    check_echo,
    check_next_request,
    request_with_data,
)
from oip_conformance.inputs import json_input
from oip_conformance.outcomes import check_error, check_success, error_message
from oip_conformance.values import INVALID_JSON, NON_OBJECTS

MIB = 2**20
# The opening and closing brackets of a nested value.
BRACKETS = [
    pytest.param("[", "]", id="lists"),
    pytest.param('{"a": ', "}", id="objects"),
]


def padded_body(size: int) -> bytes:
    """Return the valid request padded with spaces to `size` bytes."""
    return VALID_BODY.ljust(size)


@pytest.mark.parametrize("coding", ["identity", *SUPPORTED_CODINGS])
def test_body_limit(http: Http, infer_path: str, limit: int, coding: str) -> None:
    """R19: a decompressed body of exactly the limit is accepted.

    A larger one is rejected with 413.
    """
    compress = CODINGS.get(coding, bytes)
    headers = {"Content-Encoding": coding}
    body_of_limit = compress(padded_body(limit))
    check_echo(http.post(infer_path, body_of_limit, headers))

    body_beyond_limit = compress(padded_body(limit + 1))
    reply = http.post(infer_path, body_beyond_limit, headers)
    assert str(limit) in error_message(reply, 413)
    check_echo(http.post(infer_path, VALID_BODY))


def compressed_spaces(size: int, coding: str) -> bytes:
    """Return at least `size` spaces, compressed one MiB at a time."""
    framing = zlib.MAX_WBITS
    if coding == "gzip":
        framing += 16
    compressor = zlib.compressobj(9, wbits=framing)
    compressed = bytearray()
    for _ in range(size // MIB + 1):
        compressed += compressor.compress(b" " * MIB)
    compressed += compressor.flush()
    return bytes(compressed)


@pytest.mark.parametrize("coding", SUPPORTED_CODINGS)
def test_decompression_bombs(http: Http, infer_path: str, limit: int, coding: str) -> None:
    """R19: a body that decompresses to far more than the limit is rejected with 413."""
    size = min(100 * limit, limit + 128 * MIB)
    bomb = compressed_spaces(size, coding)
    reply = http.post(infer_path, bomb, {"Content-Encoding": coding})
    check_error(reply, 413)
    check_echo(http.post(infer_path, VALID_BODY))


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
@pytest.mark.parametrize("times", [1, 8])
def test_client_sends_too_much(
    http: Http, infer_path: str, limit: int, times: int, chunked: bool
) -> None:
    """R19: a client that continues to send a body over the limit receives 413."""
    first_block = padded_body(limit + 1)
    next_block = b" " * min(limit, MIB)
    blocks = [first_block] + [next_block] * (times - 1)
    headers = {}
    if not chunked:
        content_length = sum(len(block) for block in blocks)
        headers["Content-Length"] = str(content_length)
    reply = http.open("POST", infer_path, blocks, headers, chunked)
    assert str(limit) in error_message(reply, 413)
    check_echo(http.post(infer_path, VALID_BODY))


def test_client_announces_too_much(http: Http, infer_path: str, limit: int) -> None:
    """R19: a client that announces a body over the limit and then waits receives 413."""
    with http.open_raw() as connection:
        connection.send(connection.head("POST", infer_path, Content_Length=99_999_999_999))
        check_error(connection.reply(), 413)
    check_echo(http.post(infer_path, VALID_BODY))


@pytest.mark.parametrize(
    "body",
    [
        *INVALID_JSON,
        *[text.encode() for text in NON_OBJECTS],
        b"\xff\xfe{\0}\0",
        VALID_BODY[:-1],
        VALID_BODY[:9],
    ],
)
def test_invalid_bodies(http: Http, infer_path: str, body: bytes) -> None:
    """R20: a body that is empty, truncated or not a JSON object is rejected with 400, and the
    connection stays open.
    """
    reply = http.post(infer_path, body)
    check_error(reply, 400)
    check_next_request(http, infer_path)


@pytest.mark.parametrize("octets", ["ff", "c328", "eda080", "f8888080", "c0af"])
@pytest.mark.parametrize("place", ["name", "data", "member"])
def test_json_with_invalid_utf8(http: Http, infer_path: str, place: str, octets: str) -> None:
    """R20: JSON with strings that are not UTF-8 is rejected, wherever they are."""
    placeholder = "@"
    tensor = json_input("bytes_in", "BYTES", [1], ["x"])
    unknown_member = "x"
    if place == "name":
        tensor["name"] = placeholder
    elif place == "data":
        tensor["data"] = [placeholder]
    else:
        unknown_member = placeholder
    body = json.dumps({"inputs": [tensor], unknown_member: 1}).encode()
    invalid_body = body.replace(placeholder.encode(), bytes.fromhex(octets))
    reply = http.post(infer_path, invalid_body)
    check_error(reply, 400)
    check_next_request(http, infer_path)


def nested_body(levels: int, opening: str, closing: str) -> bytes:
    """Return the valid request with an unknown member that is nested `levels` levels deep."""
    value = opening * levels + "1" + closing * levels
    first_member = f'{{"extra": {value}, '.encode()
    return first_member + VALID_BODY.removeprefix(b"{")


@pytest.mark.parametrize(("opening", "closing"), BRACKETS)
def test_nesting_limit(http: Http, infer_path: str, opening: str, closing: str) -> None:
    """R20: JSON may be nested 64 levels deep, counted from the root.

    Deeper JSON is rejected with 400.
    """
    for levels in (60, 63):
        body = nested_body(levels, opening, closing)
        check_echo(http.post(infer_path, body))

    body = nested_body(64, opening, closing)
    reply = http.post(infer_path, body)
    check_error(reply, 400)
    check_next_request(http, infer_path)


@pytest.mark.parametrize(("opening", "closing"), BRACKETS)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("levels", [1100, 100_000])
def test_deep_nesting(
    http: Http, infer_path: str, opening: str, closing: str, levels: int, closed: bool
) -> None:
    """R20: JSON nested thousands of levels deep is rejected with 400, and the connection stays
    open.
    """
    if not closed:
        closing = ""
    body = nested_body(levels, opening, closing)
    reply = http.post(infer_path, body)
    check_error(reply, 400)
    check_next_request(http, infer_path)


@pytest.mark.parametrize(
    "text", ["[" * 500, '"' + "[{" * 50, "\\" + "[" * 100, '\\"' + "]" * 100, "{[" * 100 + "\\"]
)
def test_brackets_in_text(http: Http, infer_path: str, text: str) -> None:
    """R20: brackets in strings do not count as nesting."""
    envelope = json.loads(VALID_BODY)
    body = json.dumps({"extra": text, text: [[text]], **envelope})
    check_echo(http.post(infer_path, body))


def with_nested_data(levels: int) -> str:
    """Return a request with one element in `levels` lists."""
    data = "[" * levels + "1.5" + "]" * levels
    return request_with_data("fp32", "FP32", [1], data)


def test_deeply_nested_data(http: Http, infer_path: str) -> None:
    """R20: data may be nested 60 levels deep, but not 100,000."""
    reply = http.post(infer_path, with_nested_data(60))
    check_success(reply)

    reply = http.post(infer_path, with_nested_data(100_000))
    check_error(reply, 400)
    check_next_request(http, infer_path)


@pytest.mark.parametrize("sizes", [[1], [7, 1000], [1000]])
def test_chunked_body(http: Http, infer_path: str, sizes: list[int]) -> None:
    """R21: a chunked body is read completely, regardless of the chunk sizes."""
    pieces = []
    start = 0
    for size in itertools.cycle(sizes):
        if start >= len(VALID_BODY):
            break
        pieces.append(VALID_BODY[start : start + size])
        start += size
    reply = http.open("POST", infer_path, pieces, chunked=True)
    check_echo(reply)
    check_next_request(http, infer_path)


def test_chunks_with_extensions_and_trailers(http: Http, infer_path: str) -> None:
    """R21: chunk extensions and trailers are ignored."""
    half = len(VALID_BODY) // 2
    first_half = VALID_BODY[:half]
    second_half = VALID_BODY[half:]
    first_chunk = b"%x;name=value\r\n%s\r\n" % (len(first_half), first_half)
    second_chunk = b"%X\r\n%s\r\n" % (len(second_half), second_half)
    last_chunk_with_trailer = b"0\r\nX-Trailer: yes\r\n\r\n"

    with http.open_raw() as connection:
        connection.send(connection.head("POST", infer_path, Transfer_Encoding="chunked"))
        connection.send(first_chunk, second_chunk)
        connection.send(last_chunk_with_trailer)
        check_echo(connection.reply())
        connection.send(connection.request(infer_path, VALID_BODY))
        check_echo(connection.reply())


@pytest.mark.parametrize(
    "chunks",
    [b'5\r\n{"inp', b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"2\r\n{}xx0\r\n\r\n"],
)
def test_malformed_chunks(http: Http, infer_path: str, chunks: bytes) -> None:
    """R20: truncated or malformed chunks are rejected, and the next connection works."""
    with http.open_raw() as connection:
        head = connection.head("POST", infer_path, Transfer_Encoding="chunked")
        connection.send(head, chunks)
        connection.shutdown_write()
        check_error(connection.reply(), 400)
    check_echo(http.post(infer_path, VALID_BODY))


@pytest.mark.parametrize(
    "length", [0, 1, len(VALID_BODY) // 2, len(VALID_BODY) - 1, len(VALID_BODY)]
)
def test_body_shorter_than_content_length(http: Http, infer_path: str, length: int) -> None:
    """R20: a body that is shorter than its Content-Length is rejected with 400, even if it is
    complete JSON.
    """
    content_length = len(VALID_BODY)
    if length == content_length:
        content_length += 1
    with http.open_raw() as connection:
        head = connection.head("POST", infer_path, Content_Length=content_length)
        connection.send(head, VALID_BODY[:length])
        connection.shutdown_write()
        check_error(connection.reply(), 400)
    check_echo(http.post(infer_path, VALID_BODY))
