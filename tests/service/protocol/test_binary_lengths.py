"""Header lengths and sizes of binary data."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from oip_conformance.values import NO_LENGTHS
from oip_conformance.wires import error_message, pack
from tests.service.protocol.binary_requests import LENGTH, send, tensor, wrong_size

INFER = "/v2/models/test/infer"


@pytest.fixture(autouse=True)
def check_valid_request_afterward(service):
    """R20: the service still accepts a valid request after each test."""
    yield
    response = service.forms["rest binary"].infer([("a", "INT16", [1], [5])], ["a"])
    assert response.outputs == {"a": ("INT16", [1], [5])}


@pytest.mark.parametrize(
    "stated",
    NO_LENGTHS,
)
def test_rejects_invalid_header_length(service, stated: str) -> None:
    """B4: a header length that is empty, not a plain number, or larger than the body is rejected."""
    head, blob = tensor("a", True)
    headers = {LENGTH: stated.encode().decode("latin-1")}
    response = service.client.post(
        INFER, data=json.dumps({"inputs": [head]}).encode() + blob, headers=headers
    )
    assert error_message(response, 400).startswith(f"Invalid {LENGTH}. Expected ")


@pytest.mark.parametrize(
    ("off", "text"),
    [
        (-1, "Invalid JSON"),
        (1, "Invalid JSON"),
        (7, f"Invalid {LENGTH}. Expected "),
        (-10, "Invalid JSON"),
    ],
)
def test_rejects_wrong_header_length(service, off: int, text: str) -> None:
    """B4: a header length that is not the length of the JSON is rejected."""
    head, blob = tensor("a", True)
    text_length = len(json.dumps({"inputs": [head]}))
    response = service.rest.post({"inputs": [head]}, blob, **{LENGTH: str(text_length + off)})
    assert error_message(response, 400).startswith(text)


def test_rejects_header_length_of_zero_without_required_input(service) -> None:
    """B8: a header length of 0 is rejected if the model has no required input."""
    head, blob = tensor("a", True)
    response = service.rest.post({"inputs": [head]}, blob, **{LENGTH: "0"})
    assert error_message(response, 400).startswith(
        f"Invalid {LENGTH} 0. Expected a model with one required input"
    )


def test_accepts_header_length_of_the_whole_body(service) -> None:
    """B4: a header length equal to the length of the body is valid if no binary data follows."""
    head, _ = tensor("a", False)
    assert service.rest.post({"inputs": [head]}, b"").json["outputs"][0]["data"] == [1, -2, 300]
    empty, _ = tensor("a", True, shape=[0], parameters={"binary_data_size": 0})
    assert service.rest.post({"inputs": [empty]}, b"").json["outputs"][0]["data"] == []


def test_body_is_json_without_header_length(service) -> None:
    """B4: without a header length, the whole body is JSON and binary data is rejected."""
    head, blob = tensor("a", True)
    body = json.dumps({"inputs": [head]}).encode()
    assert error_message(service.client.post(INFER, data=body), 400).startswith(
        'Input "a": body too short. '
    )
    assert error_message(service.client.post(INFER, data=body + blob), 400).startswith(
        "Invalid JSON"
    )
    empty, _ = tensor("a", True, shape=[0], parameters={"binary_data_size": 0})
    assert service.rest.post({"inputs": [empty]}).json["outputs"][0]["data"] == []


@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_header_length_counts_decompressed_bytes(service, coding: str, compress: Any) -> None:
    """B4: the header length is measured in the decompressed body."""
    head, blob = tensor("a", True)
    text = json.dumps({"inputs": [head]}).encode() + b" " * 5000
    headers = {LENGTH: str(len(text)), "Content-Encoding": coding}
    assert len(compress(text + blob)) < len(text)
    response = service.client.post(INFER, data=compress(text + blob), headers=headers)
    assert response.json["outputs"][0]["data"] == [1, -2, 300]
    response = service.client.post(
        INFER, data=compress(text), headers={**headers, LENGTH: str(len(text) + 1)}
    )
    assert error_message(response, 400).startswith(f"Invalid {LENGTH}. Expected ")


@pytest.mark.parametrize(
    "datatype", ["BOOL", "UINT8", "INT16", "FP16", "BF16", "FP32", "INT64", "FP64"]
)
@pytest.mark.parametrize("off", [-1, 1])
def test_rejects_binary_data_of_the_wrong_size(echoes, datatype: str, off: int) -> None:
    """B5: binary data must have exactly the size that the shape and the datatype require."""
    blob = pack(datatype, [0, 1, 1])
    wrong = bytes(len(blob) + off)
    text = error_message(send(echoes, datatype, [3], wrong), 400)
    assert text == wrong_size("x", len(wrong), f"{datatype} [3]", len(blob))


@pytest.mark.parametrize(
    ("shape", "size"), [([0], "0"), ([2**62, 2**62], str(2**126)), ([2**32, 2**31], str(2**65))]
)
def test_size_of_large_shapes_does_not_overflow(echoes, shape: list[int], size: str) -> None:
    """B5, R9: the size that a shape requires is computed without overflow."""
    message = error_message(send(echoes, "FP32", shape, bytes(4)), 400)
    expected = "Expected the size that the shape requires, got 4 for FP32 ["
    assert message.startswith(f'Input "x": wrong number of bytes. {expected}')
    assert message.endswith(f"({size} bytes).")


@pytest.mark.parametrize("size", [7, 8, 10**6, 2**62, 2**63, 2**64 - 1])
def test_rejects_binary_data_size_beyond_the_body(echoes, size: int) -> None:
    """B5: a binary_data_size that exceeds the body is rejected."""
    text = error_message(send(echoes, "INT16", [3], bytes(6), size), 400)
    assert text.startswith('Input "x": body too short. ')
    assert str(size) in text


@pytest.mark.parametrize("size", [0, 4, 5])
def test_rejects_binary_data_size_below_the_data(echoes, size: int) -> None:
    """B5: a binary_data_size smaller than the binary data is rejected."""
    error_message(send(echoes, "INT16", [3], bytes(6), size), 400)


@pytest.mark.parametrize("trailing", [b"\0", b" ", b"}", bytes(1000)])
@pytest.mark.parametrize("binary", [True, False])
def test_rejects_trailing_bytes(service, binary: bool, trailing: bytes) -> None:
    """B5: bytes after the last binary tensor are rejected."""
    head, blob = tensor("a", binary)
    text = error_message(service.rest.post({"inputs": [head]}, blob, trailing), 400)
    assert str(len(trailing)) in text


def test_rejects_wrong_sizes_with_a_correct_sum(service) -> None:
    """B5: wrong sizes with a correct sum are rejected, and the error names the first wrong input."""
    (a, a_blob), (c, c_blob) = tensor("a", True), tensor("c", True)
    a["parameters"]["binary_data_size"] += 4
    c["parameters"]["binary_data_size"] -= 4
    text = error_message(service.rest.post({"inputs": [a, c]}, a_blob, c_blob), 400)
    assert text == wrong_size("a", 10, "INT16 [3]", 6)
