"""Group H: content codings of bodies."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from oip_conformance.client import Http
from oip_conformance.http_requests import (
    CODINGS,
    LARGE_BODY,
    LARGE_TEXT,
    SUPPORTED_CODINGS,
    VALID_BODY,
    Compression,
    check_echo,
    check_next_request,
)
from oip_conformance.inputs import SMALL_JSON
from oip_conformance.outcomes import check_error, check_success
from oip_conformance.target import Target
from oip_conformance.values import (
    ACCEPT_ENCODINGS_WITH_COMPRESSION,
    ACCEPT_ENCODINGS_WITHOUT_COMPRESSION,
    CONTENT_TYPES,
    UNKNOWN_CODINGS,
)

DECOMPRESSIONS: dict[str, Compression] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_content_type_is_ignored(http: Http, infer_path: str, content_type: str | None) -> None:
    """R18: the body is read regardless of its Content-Type, or without one."""
    check_echo(http.post(infer_path, VALID_BODY, {"Content-Type": content_type}))


@pytest.mark.parametrize(
    "coding",
    ["identity", "", *SUPPORTED_CODINGS, pytest.param("GZip", marks=pytest.mark.needs("gzip"))],
)
def test_content_codings(http: Http, infer_path: str, coding: str) -> None:
    """R18: gzip, deflate with zlib framing, and identity are understood, in upper and lower
    case.
    """
    compress = CODINGS.get(coding.lower(), bytes)
    body = compress(VALID_BODY)
    check_echo(http.post(infer_path, body, {"Content-Encoding": coding}))


@pytest.mark.needs("gzip")
def test_gzip_with_several_members(http: Http, infer_path: str) -> None:
    """R18: a gzip body may have several members."""
    first_member = gzip.compress(VALID_BODY[:20])
    second_member = gzip.compress(VALID_BODY[20:])
    body = first_member + second_member
    check_echo(http.post(infer_path, body, {"Content-Encoding": "gzip"}))


@pytest.mark.parametrize("coding", UNKNOWN_CODINGS)
def test_unknown_codings(http: Http, infer_path: str, coding: str) -> None:
    """R18: an unknown coding is rejected with 415, even in a list, and the connection stays
    open.
    """
    reply = http.post(infer_path, VALID_BODY, {"Content-Encoding": coding})
    check_error(reply, 415)
    check_next_request(http, infer_path)


def empty(body: bytes) -> bytes:
    return b""


def uncompressed(body: bytes) -> bytes:
    return VALID_BODY


def one_byte_short(body: bytes) -> bytes:
    return body[:-1]


def eight_bytes_short(body: bytes) -> bytes:
    return body[:-8]


def first_twelve_bytes(body: bytes) -> bytes:
    return body[:12]


def first_half(body: bytes) -> bytes:
    return body[: len(body) // 2]


def another_checksum(body: bytes) -> bytes:
    return body[:-4] + b"\0\0\0\0"


def trailing_bytes(body: bytes) -> bytes:
    return body + b"trailing"


def changed(body: bytes) -> bytes:
    return body[:20] + b"\xff" * 8 + body[28:]


# Functions that damage a compressed body.
DAMAGES = [
    pytest.param(empty, id="empty"),
    pytest.param(uncompressed, id="plain"),
    pytest.param(one_byte_short, id="one byte short"),
    pytest.param(eight_bytes_short, id="8 bytes short"),
    pytest.param(first_twelve_bytes, id="12 bytes"),
    pytest.param(first_half, id="half"),
    pytest.param(another_checksum, id="another checksum"),
    pytest.param(trailing_bytes, id="trailing bytes"),
    pytest.param(changed, id="changed"),
]


@pytest.mark.parametrize("coding", SUPPORTED_CODINGS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_corrupt_compressed_body(
    http: Http, infer_path: str, coding: str, damage: Compression
) -> None:
    """R18: a body that does not match its Content-Encoding is rejected with 400, and the connection
    stays open.
    """
    compress = CODINGS[coding]
    body = damage(compress(VALID_BODY))
    reply = http.post(infer_path, body, {"Content-Encoding": coding})
    check_error(reply, 400)
    check_next_request(http, infer_path)


@pytest.mark.needs("gzip")
def test_wrong_content_encoding(http: Http, infer_path: str) -> None:
    """R18: a gzip body declared as deflate is rejected, and vice versa."""
    reply = http.post(infer_path, gzip.compress(VALID_BODY), {"Content-Encoding": "deflate"})
    check_error(reply, 400)
    reply = http.post(infer_path, zlib.compress(VALID_BODY), {"Content-Encoding": "gzip"})
    check_error(reply, 400)


def compressed_response_case(accept_encoding: str) -> Any:
    """Return the value of Accept-Encoding as a parameter of a case.

    The case needs a server that compresses responses with the coding in the value.
    """
    coding = "gzip" if "gzip" in accept_encoding.lower() else "deflate"
    return pytest.param(accept_encoding, marks=pytest.mark.needs(f"{coding} responses"))


@pytest.mark.parametrize(
    "accept_encoding",
    [compressed_response_case(value) for value in ACCEPT_ENCODINGS_WITH_COMPRESSION],
)
def test_compressed_response(http: Http, infer_path: str, accept_encoding: str) -> None:
    """R18: a JSON response of at least 1 KiB is compressed if the client accepts it."""
    reply = http.post(infer_path, LARGE_BODY, {"Accept-Encoding": accept_encoding})
    check_success(reply)
    coding = reply.headers["Content-Encoding"]
    assert coding in [*CODINGS]
    decompress = DECOMPRESSIONS[coding]
    text = decompress(reply.data)
    assert json.loads(text)["outputs"][0]["data"] == [LARGE_TEXT]
    assert len(reply.data) < 1000


@pytest.mark.parametrize("accept_encoding", ACCEPT_ENCODINGS_WITHOUT_COMPRESSION)
def test_uncompressed_response(http: Http, infer_path: str, accept_encoding: str | None) -> None:
    """R18: responses are not compressed if the client does not accept it."""
    headers = {}
    if accept_encoding is not None:
        headers["Accept_Encoding"] = accept_encoding
    # http.client would add an Accept-Encoding of its own.
    with http.open_raw() as connection:
        connection.send(connection.request(infer_path, LARGE_BODY, **headers))
        reply = connection.reply()
    check_success(reply)
    assert "Content-Encoding" not in reply.headers
    assert reply.json["outputs"][0]["data"] == [LARGE_TEXT]


def test_only_inferences_are_compressed(target: Target, http: Http, infer_path: str) -> None:
    """R18: metadata and errors are not compressed, because tritonclient decompresses only inference
    responses.
    """
    headers = {"Accept-Encoding": "gzip, deflate"}
    unknown_output = {"name": "🌷" * 500}
    body = json.dumps({"inputs": [SMALL_JSON], "outputs": [unknown_output]})
    metadata_reply = http.get(target.path, headers)
    error_reply = http.post(infer_path, body, headers)
    for reply in (metadata_reply, error_reply):
        assert "Content-Encoding" not in reply.headers
        assert reply.json
