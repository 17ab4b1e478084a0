"""Raw binary requests: the body is the data of the only input, and the header length is 0 (B8)."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.protocol.messages import InferenceResponse
from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import error_message
from tests.kit import models

INFER = "/v2/models/test/infer"
RAW = {"Inference-Header-Content-Length": "0"}
IMAGE = bytes(range(256))  # not UTF-8
ROWS = np.arange(8, dtype="<f4").reshape(2, 4)


def post(service: Any, body: bytes, **headers: str) -> Any:
    return service.client.post(INFER, data=body, headers={**RAW, **headers})


def output(response: Any) -> Any:
    """Return the array of the output y, which must be binary."""
    assert response.status_code == 200, response.data
    assert response.mimetype == "application/octet-stream"
    assert response.json is None
    (tensor,) = InferenceResponse.from_http(response.data, dict(response.headers)).outputs
    return tensor.data


@pytest.mark.parametrize("declared", [[-1], [1], [-1, 1], [-1, -1]], ids=str)
def test_body_is_the_only_element_of_bytes(echoes, declared: list[int]) -> None:
    """B8: for BYTES, the body is the only element, and each variable dimension is 1."""
    array = output(post(echoes("BYTES", *declared), IMAGE))
    assert (array.shape, array.ravel().tolist()) == ((1,) * len(declared), [IMAGE])


@pytest.mark.parametrize("declared", [[-1], [8], [2, 4], [-1, 4], [2, -1], [1, -1, 2, 2]], ids=str)
def test_size_of_variable_dimension(echoes, declared: list[int]) -> None:
    """B8: for numbers, the size of the variable dimension follows from the length of the body."""
    array = output(post(echoes("FP32", *declared), ROWS.tobytes()))
    assert array.shape == ROWS.reshape(declared).shape
    assert array.ravel().tolist() == ROWS.ravel().tolist()


def test_size_of_bf16(echoes) -> None:
    """B8, R23: an element of BF16 has two bytes."""
    assert output(post(echoes("BF16", -1, 2), bytes.fromhex("803f00c0 004080bf"))).tolist() == [
        [1, -2],
        [2, -1],
    ]


@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_compressed_body(echoes, coding: str, compress: Callable[[bytes], bytes]) -> None:
    """B8, R18: a compressed body is decompressed first."""
    response = post(echoes("BYTES"), compress(IMAGE), **{"Content-Encoding": coding})
    assert output(response).tolist() == [IMAGE]


def test_chunked_body(echoes) -> None:
    """B8, R21: the length of a body without Content-Length is that of its chunks."""
    stream, ended = io.BytesIO(ROWS.tobytes()), {"wsgi.input_terminated": True}
    response = echoes("FP32").client.post(
        INFER, input_stream=stream, headers=RAW, environ_overrides=ended
    )
    assert output(response).tolist() == ROWS.ravel().tolist()


def test_optional_inputs_are_absent(serve) -> None:
    """B8: inputs with a default do not count. All outputs are returned in binary form."""
    response = post(serve(models.two_by_two()), ROWS.tobytes())
    decoded = InferenceResponse.from_http(response.data, dict(response.headers))
    assert {tensor.name: tensor.data.tolist() for tensor in decoded.outputs} == {
        "sum": [1, 5, 9, 13],
        "double": [14],
    }
    assert response.json is None


@pytest.mark.parametrize(
    ("datatype", "declared", "body", "text"),
    [
        (
            "FP32",
            [-1, -1],
            bytes(8),
            'Input "x": invalid shape. Expected at most one variable dimension',
        ),
        (
            "FP32",
            [-1, 2],
            bytes(12),
            'Input "x": wrong number of bytes. Expected the size that the shape requires',
        ),
        ("FP32", [2], bytes(12), 'Input "x": wrong number of bytes. '),
        ("FP32", [-1, 0], bytes(4), 'Input "x": wrong number of bytes. '),
        ("BYTES", [2], b"a", 'Input "x": wrong number of elements. '),
        ("BOOL", [-1], b"\2", 'Input "x": invalid data. Expected bytes with the value 0 or 1'),
        ("BYTES", [-1], b"", 'Input "x": empty body. '),
        ("FP32", [-1], b"", 'Input "x": empty body. '),
    ],
)
def test_rejects_body_that_does_not_match(
    echoes, datatype: str, declared: list[int], body: bytes, text: str
) -> None:
    """B8: a body that does not determine the shape, or does not match it, is rejected."""
    service = echoes(datatype, *declared)
    assert error_message(post(service, body), 400).startswith(text)


@pytest.mark.parametrize(
    ("inputs", "predict", "got"),
    [("ab", lambda model, a, b: a, '"a", "b"'), ("a", lambda model, a=None: a, "none")],
)
def test_rejects_other_numbers_of_inputs(serve, inputs: str, predict: Any, got: str) -> None:
    """B8: a model without exactly one required input rejects raw binary requests."""
    declared, returned = (
        [MetadataTensor(name, "FP32", [-1]) for name in inputs],
        MetadataTensor("y", "FP32", [-1]),
    )
    text = error_message(post(serve(models.model(declared, [returned], predict)), bytes(4)), 400)
    assert (
        text
        == f"Invalid Inference-Header-Content-Length 0. Expected a model with one required input, got {got}."
    )
