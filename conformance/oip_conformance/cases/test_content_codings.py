"""Group H: content codings of bodies."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from oip_conformance.client import Http
from oip_conformance.http_requests import BODY, CODINGS, LARGE, check_echo, check_next_request
from oip_conformance.inputs import SMALL, json_input
from oip_conformance.outcomes import error_message, success
from oip_conformance.target import Target
from oip_conformance.values import ACCEPTED, CONTENT_TYPES, NOT_ACCEPTED, UNKNOWN_CODINGS


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_content_type_is_ignored(http: Http, infer_path: str, content_type: str | None) -> None:
    """R18: the body is read regardless of its Content-Type, or without one."""
    check_echo(http.post(infer_path, BODY, {"Content-Type": content_type}))


@pytest.mark.parametrize(
    "coding",
    [
        *("identity", ""),
        *(pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS),
        pytest.param("GZip", marks=pytest.mark.needs("gzip")),
    ],
)
def test_content_codings(http: Http, infer_path: str, coding: str) -> None:
    """R18: gzip, deflate with zlib framing, and identity are understood, in upper and lower case."""
    encode = CODINGS.get(coding.lower(), bytes)
    check_echo(http.post(infer_path, encode(BODY), {"Content-Encoding": coding}))


@pytest.mark.needs("gzip")
def test_gzip_with_several_members(http: Http, infer_path: str) -> None:
    """R18: a gzip body may have several members."""
    body = gzip.compress(BODY[:20]) + gzip.compress(BODY[20:])
    check_echo(http.post(infer_path, body, {"Content-Encoding": "gzip"}))


@pytest.mark.parametrize("coding", UNKNOWN_CODINGS)
def test_unknown_codings(http: Http, infer_path: str, coding: str) -> None:
    """R18: an unknown coding is rejected with 415, even in a list, and the connection stays open."""
    error_message(http.post(infer_path, BODY, {"Content-Encoding": coding}), 415)
    check_next_request(http, infer_path)


CORRUPT: list[Callable[[bytes], bytes]] = [
    lambda body: b"",
    lambda body: BODY,
    lambda body: body[:-1],
    lambda body: body[:-8],
    lambda body: body[:12],
    lambda body: body[: len(body) // 2],
    lambda body: body[:-4] + b"\0\0\0\0",
    lambda body: body + b"trailing",
    lambda body: body[:20] + b"\xff" * 8 + body[28:],
]  # fmt: skip
DAMAGES = [
    "empty",
    "plain",
    "one byte short",
    "8 bytes short",
    "12 bytes",
    "half",
    "another checksum",
    "trailing bytes",
    "changed",
]


@pytest.mark.parametrize(
    "coding", [pytest.param(each, marks=pytest.mark.needs(each)) for each in CODINGS]
)
@pytest.mark.parametrize("damage", CORRUPT, ids=DAMAGES)
def test_corrupt_compressed_body(
    http: Http, infer_path: str, coding: str, damage: Callable[[bytes], bytes]
) -> None:
    """R18: a body that does not match its Content-Encoding is rejected with 400, and the connection stays open."""
    error_message(
        http.post(infer_path, damage(CODINGS[coding](BODY)), {"Content-Encoding": coding}), 400
    )
    check_next_request(http, infer_path)


@pytest.mark.needs("gzip")
def test_wrong_content_encoding(http: Http, infer_path: str) -> None:
    """R18: a gzip body declared as deflate is rejected, and vice versa."""
    error_message(http.post(infer_path, gzip.compress(BODY), {"Content-Encoding": "deflate"}), 400)
    error_message(http.post(infer_path, zlib.compress(BODY), {"Content-Encoding": "gzip"}), 400)


def accepted_coding(accepted: str) -> Any:
    """Return an Accept-Encoding case that needs a server that compresses responses with its coding."""
    coding = "gzip" if "gzip" in accepted.lower() else "deflate"
    return pytest.param(accepted, marks=pytest.mark.needs(f"{coding} responses"))


@pytest.mark.parametrize("accepted", [accepted_coding(each) for each in ACCEPTED])
def test_compressed_response(http: Http, infer_path: str, accepted: str) -> None:
    """R18: a JSON response of at least 1 KiB is compressed if the client accepts it."""
    reply = success(http.post(infer_path, LARGE, {"Accept-Encoding": accepted}))
    assert reply.headers["Content-Encoding"] in [*CODINGS]
    decompress = gzip.decompress if reply.headers["Content-Encoding"] == "gzip" else zlib.decompress
    plain = decompress(reply.data)
    assert json.loads(plain)["outputs"][0]["data"] == ["x" * 2000]
    assert len(reply.data) < 1000


@pytest.mark.parametrize("accepted", NOT_ACCEPTED)
def test_uncompressed_response(http: Http, infer_path: str, accepted: str | None) -> None:
    """R18: responses are not compressed if the client does not accept it."""
    with http.open_raw() as line:
        headers = {} if accepted is None else {"Accept_Encoding": accepted}
        line.send(line.request(infer_path, LARGE, **headers))
        reply = line.reply()
    assert "Content-Encoding" not in success(reply).headers
    assert reply.json["outputs"][0]["data"] == ["x" * 2000]


def test_only_inferences_are_compressed(target: Target, http: Http, infer_path: str) -> None:
    """R18: metadata and errors are not compressed, because tritonclient decompresses only inference responses."""
    accepted = {"Accept-Encoding": "gzip, deflate"}
    unknown = json.dumps({"inputs": [json_input(*SMALL)], "outputs": [{"name": "🌷" * 500}]})
    for reply in (http.get(target.path, accepted), http.post(infer_path, unknown, accepted)):
        assert "Content-Encoding" not in reply.headers
        assert reply.json
