"""Bodies of requests and responses: settings, headers, error messages and limits that the conformance suite cannot see."""

from __future__ import annotations

import gzip
import io
import json
import random
from typing import Any

import pytest

from app.protocol.decompression import MAX_MEMBERS, PIECE_SIZE, decompress
from app.protocol.errors import InvalidInput
from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import error_message
from tests.kit import models

LIMIT = 100_000
INFER = "/v2/models/test/infer"
TENSOR: dict[str, Any] = {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]}
BODY = json.dumps({"inputs": [TENSOR]}).encode()


@pytest.fixture(scope="module")
def client(serve):
    return serve(models.two_by_two(), max_request_bytes=LIMIT).client


def test_gzip_members_of_any_size() -> None:
    """R18: a gzip body with several members is decompressed, wherever a member ends in a chunk."""
    members = [
        random.randbytes(size)
        for size in (0, 1, *range(PIECE_SIZE - 30, PIECE_SIZE + 10), 3 * PIECE_SIZE)
    ]
    body = b"".join(gzip.compress(member) for member in members)
    assert decompress(body, "gzip", len(body)) == b"".join(members)


def test_limits_gzip_members() -> None:
    """R18: a gzip body with too many members is rejected, because empty members take long to read."""
    empty, last = gzip.compress(b""), gzip.compress(BODY)
    assert decompress(empty * (MAX_MEMBERS - 1) + last, "gzip", LIMIT) == BODY
    with pytest.raises(InvalidInput, match="Too many gzip members"):
        decompress(empty * MAX_MEMBERS + last, "gzip", LIMIT)


def test_rejects_content_length_over_limit(client) -> None:
    """R19: a Content-Length over the limit is rejected before the body is read, but after an unknown model name."""
    for path, status in ((INFER, 413), ("/v2/models/other/infer", 404)):
        response = client.post(path, data=b"", environ_overrides={"CONTENT_LENGTH": str(LIMIT + 1)})
        error_message(response, status)


@pytest.mark.parametrize(("size", "status"), [(LIMIT, 200), (LIMIT + 1, 413)])
def test_size_limit_of_chunked_body(client, size: int, status: int) -> None:
    """R19: a body without Content-Length may have exactly the limit, also with a worker that does not check it."""
    body = io.BytesIO(BODY + b" " * (size - len(BODY)))
    chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    response = client.post(INFER, input_stream=body, environ_overrides=chunked)
    assert response.status_code == status


def test_compresses_large_json_only(serve) -> None:
    """R18: a compressed response has the headers that caches need. A binary response of a few bytes is not compressed."""
    client = serve(models.echo("FP32", [-1])).rest
    numbers = {"name": "x", "datatype": "FP32", "shape": [1000], "data": [0.5] * 1000}
    large = client.post({"inputs": [numbers]}, Accept_Encoding="gzip")
    assert large.headers["Content-Encoding"] == "gzip"
    assert "accept-encoding" in large.headers["Vary"].lower()
    assert large.content_length == len(large.data)

    number = {**numbers, "shape": [1], "data": [0.5]}
    envelope = {"inputs": [number], "parameters": {"binary_data_output": True}}
    small = client.post(envelope, Accept_Encoding="gzip")
    assert "Content-Encoding" not in small.headers


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_setting_for_infinite_outputs(serve, datatype: str) -> None:
    """R12: with JSON_NONFINITE=null, ±Infinity is null in JSON, and stays ±Infinity in binary data."""
    values = [float("inf"), 1, float("-inf")]
    module = models.model([], [MetadataTensor("y", datatype, [-1])], lambda _: values)
    service = serve(module, json_nonfinite="null")
    assert service.rest.post({"inputs": []}).json["outputs"][0]["data"] == [None, 1, None]
    assert service.forms["rest binary"].infer([]).outputs["y"][2] == values


def test_rejects_nan_with_advice(client) -> None:
    """R20: NaN, as written by Python's json module, is rejected, and the error recommends null."""
    tensor = {"name": "ü", "shape": [1], "datatype": "FP32", "data": [float("nan")]}
    response = client.post(INFER, data=json.dumps({"inputs": [tensor]}))
    assert error_message(response, 400).endswith(". Use null for NaN.")


def test_rejects_body_that_is_not_utf8(client) -> None:
    """R20: the error for a body in another character encoding names UTF-8."""
    body = json.dumps({"id": "é", "inputs": []}, ensure_ascii=False).encode("latin-1")
    assert error_message(client.post(INFER, data=body), 400).startswith(
        "Invalid JSON: not UTF-8. Send a file as base64 text, or with Inference-Header"
    )


@pytest.mark.parametrize(("levels", "status"), [(62, 200), (63, 400)])
def test_depth_limit_after_large_flat_data(serve, levels: int, status: int) -> None:
    """R20: the depth limit also applies after a large flat array."""
    extra = b"[%s, %s]" % (b",".join([b"[]"] * 400_000), b"[" * levels + b"]" * levels)
    client = serve(models.two_by_two()).client
    assert client.post(INFER, data=b'{"extra": %s, %s' % (extra, BODY[1:])).status_code == status
