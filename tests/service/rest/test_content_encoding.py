"""Content encodings and the size limit of bodies."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib

import pytest

from app.protocol.errors import InvalidInput
from app.protocol.types import MetadataTensor
from app.rest.request_reader import MEMBERS, PIECE, decompress
from oip_conformance.values import (
    ACCEPTED,
    CONTENT_TYPES,
    NOT_ACCEPTED,
    UNKNOWN_CODINGS,
)
from oip_conformance.wires import error_message
from tests.kit import models
from tests.service.rest.requests import BODY, GOOD, INFER, LIMIT


@pytest.fixture(autouse=True)
def check_valid_request_afterward(client):
    """R20: check after each test that a valid request succeeds."""
    yield
    assert client.post(INFER, json=GOOD).json["outputs"][0]["data"] == [3.5]


@pytest.mark.parametrize(
    "content_type",
    CONTENT_TYPES,
)
def test_content_type_does_not_matter(client, content_type: str | None) -> None:
    """R18: the body is read with any Content-Type, and without one."""
    assert client.post(INFER, data=json.dumps(GOOD), content_type=content_type).status_code == 200


CODED = [
    ("gzip", gzip.compress(BODY, mtime=0)),
    ("GZip", gzip.compress(BODY, mtime=0)),
    ("gzip", gzip.compress(BODY[:20], mtime=0) + gzip.compress(BODY[20:], mtime=0)),
    ("deflate", zlib.compress(BODY)),
    (" deflate ", zlib.compress(BODY, 9)),
    ("identity", BODY),
    ("", BODY),
]


@pytest.mark.parametrize(("coding", "body"), CODED)
def test_content_encodings(client, coding: str, body: bytes) -> None:
    """R18: gzip with one or more members, deflate in zlib format, and identity are accepted, in upper or lower case."""
    response = client.post(INFER, data=body, headers={"Content-Encoding": coding})
    assert response.status_code == 200, response.json
    assert response.json["outputs"][0]["data"] == [3.5]


def test_gzip_members_of_any_size() -> None:
    """R18: a gzip body with several members is decompressed, wherever a member ends in a chunk."""
    members = [random.randbytes(size) for size in (0, 1, *range(PIECE - 30, PIECE + 10), 3 * PIECE)]
    body = b"".join(gzip.compress(each) for each in members)
    assert decompress(body, "gzip", len(body)) == b"".join(members)


def test_limits_gzip_members() -> None:
    """R18: a gzip body with too many members is rejected, because empty members take long to read."""
    empty, last = gzip.compress(b""), gzip.compress(BODY)
    assert decompress(empty * (MEMBERS - 1) + last, "gzip", LIMIT) == BODY
    with pytest.raises(InvalidInput, match="Too many gzip members"):
        decompress(empty * MEMBERS + last, "gzip", LIMIT)


@pytest.mark.parametrize("coding", UNKNOWN_CODINGS)
def test_rejects_unknown_encodings(client, coding: str) -> None:
    """R18: any other content encoding, or a list that contains one, returns 415."""
    assert "Content-Encoding. Expected gzip" in error_message(
        client.post(INFER, data=BODY, headers={"Content-Encoding": coding}), 415
    )


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b""),
        ("gzip", BODY),
        ("gzip", zlib.compress(BODY)),
        ("gzip", gzip.compress(BODY, mtime=0)[:-1]),
        ("gzip", gzip.compress(BODY, mtime=0)[:-8]),
        ("gzip", gzip.compress(BODY, mtime=0)[:12]),
        ("gzip", gzip.compress(BODY, mtime=0)[:-8] + b"\0" * 8),
        ("gzip", gzip.compress(BODY, mtime=0) + b"trailing"),
        ("gzip", gzip.compress(b"", mtime=0)),
        ("deflate", b""),
        ("deflate", BODY),
        ("deflate", gzip.compress(BODY, mtime=0)),
        ("deflate", zlib.compress(BODY)[:-1]),
        ("deflate", zlib.compress(BODY)[:-4] + b"\0" * 4),
        ("deflate", zlib.compress(b"{")),
    ],
)
def test_rejects_corrupt_compressed_body(client, coding: str, body: bytes) -> None:
    """R18, R19: a body that does not match its Content-Encoding, is truncated, or contains no JSON returns 400."""
    error_message(client.post(INFER, data=body, headers={"Content-Encoding": coding}), 400)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("size", [LIMIT + 1, 10**8])
def test_size_limit_after_decompression(client, coding: str, size: int) -> None:
    """R19: the size limit applies to the decompressed body."""
    bomb = (gzip if coding == "gzip" else zlib).compress(b" " * size)
    assert str(LIMIT) in error_message(
        client.post(INFER, data=bomb, headers={"Content-Encoding": coding}), 413
    )


def padded(size: int) -> bytes:
    return BODY + b" " * (size - len(BODY))


@pytest.mark.parametrize("coding", ["identity", "gzip", "deflate"])
def test_size_limit(client, coding: str) -> None:
    """R19: a body of exactly the size limit is accepted, and one more byte returns 413."""
    code = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[coding]
    for size, status in [(LIMIT, 200), (LIMIT + 1, 413)]:
        response = client.post(INFER, data=code(padded(size)), headers={"Content-Encoding": coding})
        assert response.status_code == status, response.json


@pytest.mark.parametrize(
    ("path", "status", "text"), [(INFER, 413, str(LIMIT)), ("/v2/models/other/infer", 404, "other")]
)
def test_rejects_content_length_over_limit(client, path: str, status: int, text: str) -> None:
    """R19: a Content-Length over the limit is rejected before the body is read, but after an unknown model name."""
    response = client.post(path, data=b"", environ_overrides={"CONTENT_LENGTH": str(LIMIT + 1)})
    assert text in error_message(response, status)


def test_size_limit_of_chunked_body(client) -> None:
    """R19: the size limit applies to a chunked body too."""
    chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    for size, status in [(LIMIT, 200), (LIMIT + 1, 413)]:
        response = client.post(
            INFER, input_stream=io.BytesIO(padded(size)), environ_overrides=chunked
        )
        assert response.status_code == status, response.json
    assert str(LIMIT) in error_message(response, 413)


@pytest.mark.parametrize("accepted", ACCEPTED)
def test_compresses_large_response(echoes, accepted: str) -> None:
    """R18: a JSON response of 1 KiB or more is compressed if the client accepts it."""
    service = echoes("BYTES")
    envelope = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["x" * 2000]}]}
    response = service.rest.post(envelope, Accept_Encoding=accepted)
    plain = {"gzip": gzip.decompress, "deflate": zlib.decompress}[
        response.headers["Content-Encoding"]
    ](response.data)
    assert response.headers["Content-Encoding"] in accepted.lower()
    assert json.loads(plain)["outputs"][0]["data"] == ["x" * 2000]
    assert response.content_length == len(response.data) < 1000
    assert "accept-encoding" in response.headers["Vary"].lower()


@pytest.mark.parametrize("accepted", NOT_ACCEPTED)
def test_does_not_compress_unless_accepted(echoes, accepted: str | None) -> None:
    """R18: a response is not compressed if the client does not accept it."""
    headers = {} if accepted is None else {"Accept_Encoding": accepted}
    envelope = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["x" * 2000]}]}
    response = echoes("BYTES").rest.post(envelope, **headers)
    assert "Content-Encoding" not in response.headers
    assert response.json["outputs"][0]["data"] == ["x" * 2000]


def test_does_not_compress_metadata_and_errors(serve) -> None:
    """R18: metadata and errors are not compressed, even if they are large and the client accepts it."""
    tensors = [MetadataTensor(f"{index}" * 40, "FP32", [-1]) for index in range(1, 30)]
    client = serve(models.model([], tensors, lambda _: 1 / 0)).client
    for response in (
        client.get("/v2/models/test", headers={"Accept-Encoding": "gzip, deflate"}),
        client.post(
            INFER,
            json={"inputs": [{"name": "a", "shape": ["🌷" * 500]}] * 8},
            headers={"Accept-Encoding": "gzip"},
        ),
    ):
        assert "Content-Encoding" not in response.headers
        assert len(response.data) > 1024
        assert response.json
