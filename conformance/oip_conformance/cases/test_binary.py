"""The Binary Tensor Data Extension (B1-B7)."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from oip_conformance.binary_requests import (
    TENSORS,
    binary_input,
    binary_output,
    binary_tensor,
    check_next_request,
    json_output,
    json_tensor,
    read_binary,
    requested_output,
    send_binary,
)
from oip_conformance.client import Reply
from oip_conformance.inputs import SMALL_JSON, SMALL_VALUES, json_input
from oip_conformance.model import input_of
from oip_conformance.outcomes import check_error, check_success
from oip_conformance.target import Target
from oip_conformance.values import BINARY_ELEMENTS, INVALID_BYTES_DATA
from oip_conformance.wires import HEADER_LENGTH, Output, Rest, canonical_bytes, pack

pytestmark = pytest.mark.needs("binary")
SUBSETS: list[set[str]] = [
    set(),
    {"pairs"},
    {"bytes"},
    {"bytes", "pairs"},
    {"int16"},
    {"int16", "pairs"},
    {"int16", "bytes"},
    {"int16", "bytes", "pairs"},
]
ORDERS = [["int16", "bytes", "pairs"], ["pairs", "int16", "bytes"], ["bytes", "pairs", "int16"]]


def subset_id(names: set[str]) -> str:
    """Return the id of a parameter from SUBSETS."""
    return "+".join(sorted(names)) or "none"


def send_tensor(rest: Rest, name: str, blob: bytes, **members: Any) -> Reply:
    """Send one input of TENSORS with these bytes after the JSON, and return the reply."""
    tensor, _ = binary_tensor(name, **members)
    return rest.post({"inputs": [tensor], "outputs": [binary_output(name)]}, blob)


@pytest.mark.parametrize(("datatype", "shape", "blob", "data"), BINARY_ELEMENTS)
def test_bytes_on_the_wire(
    target: Target, rest: Rest, datatype: str, shape: list[int], blob: str, data: list
) -> None:
    """B1: elements are little-endian and without padding, in requests and responses."""
    octets = bytes.fromhex(blob)
    count = len(data)
    reply = send_binary(rest, datatype, [count], octets)
    body, blobs = read_binary(reply)
    assert blobs == octets
    (output,) = body["outputs"]
    assert output["datatype"] == datatype
    assert output["shape"] == [count]

    if not target.supports_json(datatype):
        return
    name = input_of(datatype)
    tensor = binary_input(name, datatype, [count], size=len(octets))
    envelope = {"inputs": [tensor], "outputs": [json_output(datatype.lower())]}
    reply = rest.post(envelope, octets)
    returned = reply.json["outputs"][0]["data"]
    assert canonical_bytes(datatype, returned) == canonical_bytes(datatype, data)


def test_row_major(rest: Rest) -> None:
    """B1: elements are row-major."""
    octets = struct.pack("<6i", 0, 1, 2, 3, 4, 5)
    tensor = json_input("grid_in", "INT32", [3, 2], [[0, 1], [2, 3], [4, 5]])
    reply = rest.post({"inputs": [tensor], "outputs": [binary_output("grid")]})
    body, blobs = read_binary(reply)
    output = body["outputs"][0]
    assert output["shape"] == [3, 2]
    assert blobs == octets


@pytest.mark.parametrize("octet", [2, 127, 128, 255])
def test_bool_is_0_or_1(rest: Rest, octet: int) -> None:
    """B1: a BOOL byte other than 0 and 1 is rejected."""
    reply = send_binary(rest, "BOOL", [3], bytes([1, octet, 0]))
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize(
    "bits", ["0000000000000080", "010000000000f07f", "010000000000f87f", "0100000000000000"]
)
def test_float_bits_are_preserved(rest: Rest, bits: str) -> None:
    """B1: every bit of a float is preserved, including NaN payloads."""
    octets = bytes.fromhex(bits)
    reply = send_binary(rest, "FP64", [1], octets)
    response = read_binary(reply)
    assert response.blobs == octets


@pytest.mark.parametrize("size", [True, "6", 6.0, -1, -6, 10**20, [6], None, {}], ids=repr)
def test_invalid_binary_data_size(rest: Rest, size: Any) -> None:
    """B2: a binary_data_size other than an integer of at least 0 is rejected."""
    tensor, blob = binary_tensor("int16", parameters={"binary_data_size": size})
    reply = rest.post({"inputs": [tensor]}, blob)
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize(("size", "count"), [(True, 1), (False, 0), (1.0, 1), ("1", 1)], ids=repr)
def test_binary_data_size_of_another_type(rest: Rest, size: Any, count: int) -> None:
    """B2: a binary_data_size of another type is rejected, even if its value is right."""
    reply = send_binary(rest, "UINT8", [count], bytes(count), size=size)
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("values", [[1, -2, 300], []])
@pytest.mark.parametrize("data", [[1, -2, 300], []])
def test_data_and_binary_data(rest: Rest, values: list[int], data: list[int]) -> None:
    """B2: an input with both data and binary data is rejected, even if both are empty."""
    blob = pack("INT16", values)
    size = {"binary_data_size": len(blob)}
    reply = send_tensor(rest, "int16", blob, shape=[len(values)], data=data, parameters=size)
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("shape", [[3], [0]])
def test_neither_data_nor_binary_data(rest: Rest, shape: list[int]) -> None:
    """B2: an input with neither data nor binary data is rejected, even without elements."""
    reply = send_tensor(rest, "int16", b"", parameters={}, shape=shape)
    check_error(reply, 400)


@pytest.mark.parametrize("binary", SUBSETS, ids=subset_id)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_mixed_inputs(rest: Rest, order: list[str], binary: set[str]) -> None:
    """B3: binary and JSON inputs mix in any order, and the bytes follow in the order of their
    tensors.
    """
    inputs = []
    blobs = []
    for name in order:
        if name in binary:
            tensor, blob = binary_tensor(name)
            blobs.append(blob)
        else:
            tensor = json_tensor(name)
        inputs.append(tensor)
    requested_outputs = [json_output(name) for name in TENSORS]
    reply = rest.post({"inputs": inputs, "outputs": requested_outputs}, *blobs)
    check_success(reply)

    outputs = {}
    for output in reply.json["outputs"]:
        name = output["name"].removesuffix("_out")
        outputs[name] = Output(output["datatype"], output["shape"], output["data"])
    assert outputs == TENSORS


@pytest.mark.parametrize("binary", SUBSETS, ids=subset_id)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_mixed_outputs(rest: Rest, order: list[str], binary: set[str]) -> None:
    """B3: binary and JSON outputs mix in any order. R16 checks their order."""
    inputs = [json_tensor(name) for name in TENSORS]
    outputs = [requested_output(name, name in binary) for name in order]
    reply = rest.post({"inputs": inputs, "outputs": outputs})
    if binary:
        body, blobs = read_binary(reply)
    else:
        body = reply.json
        blobs = b""

    names = []
    for output in body["outputs"]:
        name = output["name"].removesuffix("_out")
        names.append(name)
        datatype, _, values = TENSORS[name]
        if name in binary:
            assert "data" not in output
            size = output["parameters"]["binary_data_size"]
            assert blobs[:size] == pack(datatype, values)
            blobs = blobs[size:]
        else:
            assert output["data"] == values
    assert sorted(names) == sorted(order)
    assert blobs == b""


@pytest.mark.parametrize("blob", [blob for blob, _ in INVALID_BYTES_DATA])
def test_bytes_elements(rest: Rest, blob: bytes) -> None:
    """B5: elements of BYTES must fill the binary data exactly, and match the number in the
    shape.
    """
    reply = send_binary(rest, "BYTES", [2], blob)
    check_error(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("on_request", [None, False, True])
@pytest.mark.parametrize("on_output", [None, False, True])
def test_output_parameters(rest: Rest, on_request: bool | None, on_output: bool | None) -> None:
    """B6: binary_data on an output overrides binary_data_output on the request.

    The default is JSON.
    """
    envelope: dict[str, Any] = {
        "inputs": [json_tensor("int16"), json_tensor("pairs")],
        "outputs": [requested_output("int16", on_output), requested_output("pairs", None)],
    }
    if on_request is not None:
        envelope["parameters"] = {"binary_data_output": on_request}
    is_pairs_binary = bool(on_request)
    is_int16_binary = is_pairs_binary if on_output is None else on_output

    reply = rest.post(envelope)
    if is_int16_binary or is_pairs_binary:
        outputs = read_binary(reply).body["outputs"]
    else:
        outputs = reply.json["outputs"]
    are_binary = ["data" not in output for output in outputs]
    assert are_binary == [is_int16_binary, is_pairs_binary]


@pytest.mark.parametrize("outputs", [{}, {"outputs": None}, {"outputs": []}], ids=repr)
def test_all_outputs_are_binary(rest: Rest, outputs: dict[str, Any]) -> None:
    """B6: without a list of outputs, binary_data_output applies to all outputs."""
    parameters = {"binary_data_output": True}
    reply = rest.post({"inputs": [SMALL_JSON], "parameters": parameters, **outputs})
    body, blobs = read_binary(reply)
    total_size = 0
    for output in body["outputs"]:
        assert "data" not in output
        total_size += output["parameters"]["binary_data_size"]
    assert total_size == len(blobs)
    assert blobs == struct.pack("<2f", *SMALL_VALUES)


@pytest.mark.parametrize("binary", [1, "true", [], 0.0], ids=repr)
def test_invalid_binary_parameters(rest: Rest, binary: Any) -> None:
    """B6: a binary_data or binary_data_output other than true or false is rejected."""
    output = requested_output("fp32", binary)
    reply = rest.post({"inputs": [SMALL_JSON], "outputs": [output]})
    check_error(reply, 400)
    parameters = {"binary_data_output": binary}
    reply = rest.post({"inputs": [SMALL_JSON], "parameters": parameters})
    check_error(reply, 400)


def test_binary_response(target: Target, rest: Rest) -> None:
    """B7: a binary response has its media type and lengths in headers, and the usual JSON
    members.
    """
    tensor, blob = binary_tensor("int16")
    envelope = {"id": "42", "inputs": [tensor], "outputs": [binary_output("int16")]}
    reply = rest.post(envelope, blob)
    body, blobs = read_binary(reply)
    assert reply.mimetype == "application/octet-stream"
    assert reply.content_length == len(reply.data)
    assert blobs == blob
    (output,) = body["outputs"]
    assert output["name"] == "int16_out"
    assert output["datatype"] == "INT16"
    assert output["shape"] == [3]
    assert output["parameters"]["binary_data_size"] == len(blob)
    assert body["model_name"] == target.model
    assert body["id"] == "42"


def test_response_without_binary_outputs(rest: Rest) -> None:
    """B7: a response without binary outputs is plain JSON without a header length."""
    tensor, blob = binary_tensor("int16")
    reply = rest.post({"inputs": [tensor], "outputs": [json_output("int16")]}, blob)
    check_success(reply)
    assert reply.mimetype == "application/json"
    assert HEADER_LENGTH not in reply.headers


def test_empty_binary_output(rest: Rest) -> None:
    """B7: an output without elements has a binary_data_size of 0."""
    reply = send_binary(rest, "FP32", [0], b"")
    body, blobs = read_binary(reply)
    output = body["outputs"][0]
    assert output["parameters"]["binary_data_size"] == 0
    assert blobs == b""


def test_error_with_binary_output(rest: Rest) -> None:
    """B7, R19: an error response is JSON, even if binary output was requested."""
    tensor, blob = binary_tensor("int16", datatype="INT32")
    reply = rest.post({"inputs": [tensor], "parameters": {"binary_data_output": True}}, blob)
    check_error(reply, 400)
    assert HEADER_LENGTH not in reply.headers
