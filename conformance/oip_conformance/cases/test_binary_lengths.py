"""Group B: header lengths and sizes of binary data."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from oip_conformance.binary_requests import (
    LENGTH,
    check_next_request,
    read,
    requested_output,
    send,
    tensor,
)
from oip_conformance.model import INPUT_OF_RANK
from oip_conformance.outcomes import error_message, success
from oip_conformance.values import NO_LENGTHS
from oip_conformance.wires import Rest, pack

pytestmark = pytest.mark.needs("binary")


@pytest.mark.parametrize("stated", NO_LENGTHS)
def test_invalid_header_length(rest: Rest, stated: str) -> None:
    """B4: a header length that is empty, not a plain number or beyond the body is rejected with 400."""
    made, blob = tensor("int16")
    reply = rest.post({"inputs": [made]}, blob, **{LENGTH: stated.encode().decode("latin-1")})
    error_message(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("off", [-1, 1, -10, 6, 7])
def test_wrong_header_length(rest: Rest, off: int) -> None:
    """B4: a header length greater or less than the JSON's length is rejected with 400."""
    made, blob = tensor("int16")
    length = len(json.dumps({"inputs": [made]}))
    error_message(rest.post({"inputs": [made]}, blob, **{LENGTH: str(length + off)}), 400)
    check_next_request(rest)


def test_header_length_of_zero(rest: Rest) -> None:
    """B8: a header length of 0 is rejected with 400 if the model does not have one required input."""
    made, blob = tensor("int16")
    error_message(rest.post({"inputs": [made]}, blob, **{LENGTH: "0"}), 400)


def test_header_length_of_whole_body(rest: Rest) -> None:
    """B4: a header length equal to the body's length is valid without binary tensors."""
    for made in (
        tensor("int16", False)[0],
        tensor("int16", shape=[0], parameters={"binary_data_size": 0})[0],
    ):
        reply = rest.post({"inputs": [made], "outputs": [requested_output("int16", False)]}, b"")
        success(reply)
        assert reply.json["outputs"][0]["data"] == made.get("data", [])


@pytest.mark.parametrize("spelling", [LENGTH.lower(), LENGTH.upper()])
def test_header_name_is_case_insensitive(rest: Rest, spelling: str) -> None:
    """B4: the header's name is case-insensitive."""
    made, blob = tensor("int16")
    text = json.dumps({"inputs": [made], "outputs": [requested_output("int16")]}).encode()
    reply = rest.client.post(
        f"/v2/models/{rest.model}/infer", text + blob, {spelling: f"{len(text)}"}
    )
    assert read(reply)[1] == blob


def test_missing_header_length(rest: Rest) -> None:
    """B4: without a header length, the whole body is JSON, and binary inputs are rejected."""
    made, blob = tensor("int16")
    body = json.dumps({"inputs": [made]}).encode()
    for octets in (body, body + blob):
        error_message(rest.client.post(f"/v2/models/{rest.model}/infer", octets), 400)
    empty, _ = tensor("int16", shape=[0], parameters={"binary_data_size": 0})
    success(rest.post({"inputs": [empty]}))


@pytest.mark.parametrize(
    ("coding", "compress"),
    [
        pytest.param("gzip", gzip.compress, marks=pytest.mark.needs("gzip")),
        pytest.param("deflate", zlib.compress, marks=pytest.mark.needs("deflate")),
    ],
)
def test_header_length_of_compressed_body(rest: Rest, coding: str, compress: Any) -> None:
    """B4: the header length counts bytes of the decompressed body."""
    made, blob = tensor("int16")
    text = (
        json.dumps({"inputs": [made], "outputs": [requested_output("int16")]}).encode()
        + b" " * 5000
    )
    headers = {LENGTH: str(len(text)), "Content-Encoding": coding}
    infer_path = f"/v2/models/{rest.model}/infer"
    assert read(rest.client.post(infer_path, compress(text + blob), headers))[1] == blob
    error_message(
        rest.client.post(infer_path, compress(text), {**headers, LENGTH: str(len(text) + 1)}), 400
    )


@pytest.mark.parametrize(
    "datatype", ["BOOL", "UINT8", "INT16", "FP16", "BF16", "FP32", "INT64", "FP64"]
)
@pytest.mark.parametrize("off", [-1, 1])
def test_size_does_not_match_shape(rest: Rest, datatype: str, off: int) -> None:
    """B5: a size other than the shape and datatype require is rejected."""
    error_message(
        send(rest, datatype.lower(), datatype, [3], bytes(len(pack(datatype, [0, 0, 0])) + off)),
        400,
    )
    check_next_request(rest)


@pytest.mark.parametrize(
    "shape", [[0], [2**62], [2**63 - 1], [2**61 + 1], [2**62, 4], [2**32, 2**32], [2**31, 2**33, 2]]
)
def test_shape_overflow(rest: Rest, shape: list[int]) -> None:
    """B5: the size that a shape requires is computed without overflow, even for small bodies."""
    error_message(send(rest, INPUT_OF_RANK[len(shape)], "INT32", shape, bytes(4)), 400)
    check_next_request(rest)


@pytest.mark.parametrize("size", [0, 4, 5, 7, 8, 10**6, 2**62, 2**63, 2**64 - 1])
def test_size_beyond_body(rest: Rest, size: int) -> None:
    """B5: a binary_data_size that ends before or beyond the end of the body is rejected with 400."""
    error_message(send(rest, "int16", "INT16", [3], bytes(6), size), 400)
    check_next_request(rest)


@pytest.mark.parametrize("trailing", [b"\0", b" ", b"}", bytes(1000)])
@pytest.mark.parametrize("binary", [True, False])
def test_trailing_bytes(rest: Rest, binary: bool, trailing: bytes) -> None:
    """B5: bytes after the last binary tensor are rejected."""
    made, blob = tensor("int16", binary)
    error_message(rest.post({"inputs": [made]}, blob, trailing), 400)
    check_next_request(rest)


@pytest.mark.parametrize("moved", [4, -4, 6, 8, -6])
def test_sizes_right_in_sum_only(rest: Rest, moved: int) -> None:
    """B5: sizes that are incorrect although their sum is correct, including negative ones, are rejected with 400."""
    (first, first_blob), (second, second_blob) = tensor("int16"), tensor("pairs")
    first["parameters"]["binary_data_size"] += moved
    second["parameters"]["binary_data_size"] -= moved
    error_message(rest.post({"inputs": [first, second]}, first_blob, second_blob), 400)
    check_next_request(rest)


def test_negative_size(rest: Rest) -> None:
    """B5: a negative size does not compensate for a size that is too large."""
    (first, blob), (second, more) = tensor("int16"), tensor("pairs")
    first["parameters"]["binary_data_size"], second["parameters"]["binary_data_size"] = (
        len(blob + more) + 5,
        -5,
    )
    error_message(rest.post({"inputs": [first, second]}, blob, more), 400)
    check_next_request(rest)
