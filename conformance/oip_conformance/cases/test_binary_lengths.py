"""Group B: header lengths and sizes of binary data."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from oip_conformance.binary_requests import (
    binary_output,
    binary_tensor,
    check_next_request,
    json_output,
    json_tensor,
    read_binary,
    send_binary,
)
from oip_conformance.http_requests import Compression
from oip_conformance.model import INPUT_OF_RANK
from oip_conformance.outcomes import check_error, check_success
from oip_conformance.values import INVALID_LENGTHS
from oip_conformance.wires import HEADER_LENGTH, Rest, pack

pytestmark = pytest.mark.needs("binary")
# An input without elements. It has no bytes after the JSON.
EMPTY_INPUT, _ = binary_tensor("int16", shape=[0], parameters={"binary_data_size": 0})


@pytest.mark.parametrize("length_text", INVALID_LENGTHS)
def test_invalid_header_length(rest: Rest, length_text: str) -> None:
    """B4: a header length that is empty, not a plain number or beyond the body is rejected with
    400.
    """
    tensor, blob = binary_tensor("int16")
    header = length_text.encode().decode("latin-1")  # http.client sends headers as Latin-1
    reply = rest.post({"inputs": [tensor]}, blob, **{HEADER_LENGTH: header})
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("offset", [-1, 1, -10, 6, 7])
def test_wrong_header_length(rest: Rest, offset: int) -> None:
    """B4: a header length greater or less than the JSON's length is rejected with 400."""
    tensor, blob = binary_tensor("int16")
    length = len(json.dumps({"inputs": [tensor]})) + offset
    reply = rest.post({"inputs": [tensor]}, blob, **{HEADER_LENGTH: str(length)})
    check_error(reply, 400)
    check_next_request(rest)


def test_header_length_of_zero(rest: Rest) -> None:
    """B8: a header length of 0 is rejected with 400 if the model does not have one required
    input.
    """
    tensor, blob = binary_tensor("int16")
    reply = rest.post({"inputs": [tensor]}, blob, **{HEADER_LENGTH: "0"})
    check_error(reply, 400)


def test_header_length_of_whole_body(rest: Rest) -> None:
    """B4: a header length equal to the body's length is valid without binary tensors."""
    for tensor in (json_tensor("int16"), EMPTY_INPUT):
        no_bytes = b""  # an argument, so that the request has a header length
        reply = rest.post({"inputs": [tensor], "outputs": [json_output("int16")]}, no_bytes)
        check_success(reply)
        data = reply.json["outputs"][0]["data"]
        assert data == tensor.get("data", [])


@pytest.mark.parametrize("spelling", [HEADER_LENGTH.lower(), HEADER_LENGTH.upper()])
def test_header_name_is_case_insensitive(rest: Rest, spelling: str) -> None:
    """B4: the header's name is case-insensitive."""
    tensor, blob = binary_tensor("int16")
    head = json.dumps({"inputs": [tensor], "outputs": [binary_output("int16")]}).encode()
    path = f"/v2/models/{rest.model}/infer"
    reply = rest.client.post(path, head + blob, {spelling: str(len(head))})
    assert read_binary(reply).blobs == blob


def test_missing_header_length(rest: Rest) -> None:
    """B4: without a header length, the whole body is JSON, and binary inputs are rejected."""
    tensor, blob = binary_tensor("int16")
    head = json.dumps({"inputs": [tensor]}).encode()
    path = f"/v2/models/{rest.model}/infer"
    for body in (head, head + blob):
        reply = rest.client.post(path, body)
        check_error(reply, 400)

    reply = rest.post({"inputs": [EMPTY_INPUT]})
    check_success(reply)


@pytest.mark.parametrize(
    ("coding", "compress"),
    [
        pytest.param("gzip", gzip.compress, marks=pytest.mark.needs("gzip")),
        pytest.param("deflate", zlib.compress, marks=pytest.mark.needs("deflate")),
    ],
)
def test_header_length_of_compressed_body(rest: Rest, coding: str, compress: Compression) -> None:
    """B4: the header length counts bytes of the decompressed body."""
    tensor, blob = binary_tensor("int16")
    envelope = {"inputs": [tensor], "outputs": [binary_output("int16")]}
    head = json.dumps(envelope).encode() + b" " * 5000
    path = f"/v2/models/{rest.model}/infer"
    headers = {"Content-Encoding": coding}

    headers[HEADER_LENGTH] = str(len(head))
    reply = rest.client.post(path, compress(head + blob), headers)
    assert read_binary(reply).blobs == blob

    wrong_length = len(head) + 1
    headers[HEADER_LENGTH] = str(wrong_length)
    reply = rest.client.post(path, compress(head), headers)
    check_error(reply, 400)


@pytest.mark.parametrize(
    "datatype", ["BOOL", "UINT8", "INT16", "FP16", "BF16", "FP32", "INT64", "FP64"]
)
@pytest.mark.parametrize("offset", [-1, 1])
def test_size_does_not_match_shape(rest: Rest, datatype: str, offset: int) -> None:
    """B5: a size other than the shape and datatype require is rejected."""
    right_size = len(pack(datatype, [0, 0, 0]))
    reply = send_binary(rest, datatype, [3], bytes(right_size + offset))
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize(
    "shape", [[0], [2**62], [2**63 - 1], [2**61 + 1], [2**62, 4], [2**32, 2**32], [2**31, 2**33, 2]]
)
def test_shape_overflow(rest: Rest, shape: list[int]) -> None:
    """B5: the size that a shape requires is computed without overflow, even for small bodies."""
    name = INPUT_OF_RANK[len(shape)]
    reply = send_binary(rest, "INT32", shape, bytes(4), name=name)
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("size", [0, 4, 5, 7, 8, 10**6, 2**62, 2**63, 2**64 - 1])
def test_size_beyond_body(rest: Rest, size: int) -> None:
    """B5: a binary_data_size that ends before or beyond the end of the body is rejected with
    400.
    """
    reply = send_binary(rest, "INT16", [3], bytes(6), size=size)
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("trailing", [b"\0", b" ", b"}", bytes(1000)])
@pytest.mark.parametrize("binary", [True, False])
def test_trailing_bytes(rest: Rest, binary: bool, trailing: bytes) -> None:
    """B5: bytes after the last binary tensor are rejected."""
    if binary:
        tensor, blob = binary_tensor("int16")
    else:
        tensor = json_tensor("int16")
        blob = b""
    reply = rest.post({"inputs": [tensor]}, blob, trailing)
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("shift", [4, -4, 6, 8, -6])
def test_sizes_right_in_sum_only(rest: Rest, shift: int) -> None:
    """B5: sizes that are incorrect although their sum is correct, including negative ones, are
    rejected with 400.
    """
    first, first_blob = binary_tensor("int16")
    second, second_blob = binary_tensor("pairs")
    first["parameters"]["binary_data_size"] += shift
    second["parameters"]["binary_data_size"] -= shift
    reply = rest.post({"inputs": [first, second]}, first_blob, second_blob)
    check_error(reply, 400)
    check_next_request(rest)


def test_negative_size(rest: Rest) -> None:
    """B5: a negative size does not compensate for a size that is too large."""
    first, first_blob = binary_tensor("int16")
    second, second_blob = binary_tensor("pairs")
    excess = 5
    total_size = len(first_blob) + len(second_blob)
    first["parameters"]["binary_data_size"] = total_size + excess
    second["parameters"]["binary_data_size"] = -excess
    reply = rest.post({"inputs": [first, second]}, first_blob, second_blob)
    check_error(reply, 400)
    check_next_request(rest)
