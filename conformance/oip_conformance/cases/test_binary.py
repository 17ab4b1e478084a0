"""The Binary Tensor Data Extension (B1-B7)."""

from __future__ import annotations

import struct
from itertools import product
from typing import Any

import pytest

from oip_conformance.binary_requests import (
    LENGTH,
    TENSORS,
    check_next_request,
    read,
    requested_output,
    send,
    tensor,
)
from oip_conformance.client import Reply
from oip_conformance.inputs import SMALL, json_input
from oip_conformance.outcomes import error_message, success
from oip_conformance.target import Target
from oip_conformance.values import ON_THE_WIRE, TORN_BYTES
from oip_conformance.wires import RAW_ONLY, Rest, exact, pack

pytestmark = pytest.mark.needs("binary")
SUBSETS = [
    {name for name, taken in zip(TENSORS, mask, strict=True) if taken}
    for mask in product([0, 1], repeat=3)
]
ORDERS = [["int16", "bytes", "pairs"], ["pairs", "int16", "bytes"], ["bytes", "pairs", "int16"]]


def post(rest: Rest, name: str, blob: bytes, **members: Any) -> Reply:
    """Send one input of TENSORS with these bytes after the JSON, and return the reply."""
    made, _ = tensor(name, **members)
    return rest.post({"inputs": [made], "outputs": [requested_output(name)]}, blob)


@pytest.mark.parametrize(("datatype", "shape", "blob", "data"), ON_THE_WIRE)
def test_bytes_on_the_wire(
    target: Target, rest: Rest, datatype: str, shape: list[int], blob: str, data: list
) -> None:
    """B1: elements are little-endian and without padding, in requests and responses."""
    octets, count, name = bytes.fromhex(blob), len(data), datatype.lower()
    body, blobs = read(send(rest, name, datatype, [count], octets))
    assert blobs == octets
    (output,) = body["outputs"]
    assert (output["datatype"], output["shape"]) == (datatype, [count])
    made = {
        "name": f"{name}_in",
        "datatype": datatype,
        "shape": [count],
        "parameters": {"binary_data_size": len(octets)},
    }
    if datatype in RAW_ONLY and not target.supports(f"{datatype.lower()} json"):
        return
    reply = rest.post({"inputs": [made], "outputs": [requested_output(name, False)]}, octets)
    assert exact(datatype, reply.json["outputs"][0]["data"]) == exact(datatype, data)


def test_row_major(rest: Rest) -> None:
    """B1: elements are row-major."""
    octets = struct.pack("<6i", *range(6))
    made = {
        "name": "grid_in",
        "datatype": "INT32",
        "shape": [3, 2],
        "data": [[0, 1], [2, 3], [4, 5]],
    }
    body, blobs = read(rest.post({"inputs": [made], "outputs": [requested_output("grid")]}))
    assert (body["outputs"][0]["shape"], blobs) == ([3, 2], octets)


@pytest.mark.parametrize("octet", [2, 127, 128, 255])
def test_bool_is_0_or_1(rest: Rest, octet: int) -> None:
    """B1: a BOOL byte other than 0 and 1 is rejected."""
    error_message(send(rest, "bool", "BOOL", [3], bytes([1, octet, 0])), 400)
    check_next_request(rest)


@pytest.mark.parametrize(
    "bits", ["0000000000000080", "010000000000f07f", "010000000000f87f", "0100000000000000"]
)
def test_float_bits_are_preserved(rest: Rest, bits: str) -> None:
    """B1: every bit of a float is preserved, including NaN payloads."""
    assert read(send(rest, "fp64", "FP64", [1], bytes.fromhex(bits)))[1] == bytes.fromhex(bits)


@pytest.mark.parametrize("size", [True, "6", 6.0, -1, -6, 10**20, [6], None, {}], ids=repr)
def test_invalid_binary_data_size(rest: Rest, size: Any) -> None:
    """B2: a binary_data_size other than an integer of at least 0 is rejected."""
    made, blob = tensor("int16", parameters={"binary_data_size": size})
    error_message(rest.post({"inputs": [made]}, blob), 400)
    check_next_request(rest)


@pytest.mark.parametrize(("size", "count"), [(True, 1), (False, 0), (1.0, 1), ("1", 1)], ids=repr)
def test_binary_data_size_of_another_type(rest: Rest, size: Any, count: int) -> None:
    """B2: a binary_data_size of another type is rejected, even if its value is right."""
    error_message(send(rest, "uint8", "UINT8", [count], bytes(count), size), 400)
    check_next_request(rest)


@pytest.mark.parametrize("values", [[1, -2, 300], []])
@pytest.mark.parametrize("data", [[1, -2, 300], []])
def test_data_and_binary_data(rest: Rest, values: list[int], data: list[int]) -> None:
    """B2: an input with both data and binary data is rejected, even if both are empty."""
    blob = pack("INT16", values)
    size = {"binary_data_size": len(blob)}
    reply = post(rest, "int16", blob, shape=[len(values)], data=data, parameters=size)
    error_message(reply, 400)
    check_next_request(rest)


@pytest.mark.parametrize("shape", [[3], [0]])
def test_neither_data_nor_binary_data(rest: Rest, shape: list[int]) -> None:
    """B2: an input with neither data nor binary data is rejected, even without elements."""
    error_message(post(rest, "int16", b"", parameters={}, shape=shape), 400)


@pytest.mark.parametrize("binary", SUBSETS, ids=lambda names: "+".join(sorted(names)) or "none")
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_mixed_inputs(rest: Rest, order: list[str], binary: set[str]) -> None:
    """B3: binary and JSON inputs mix in any order, and the bytes follow in the order of their tensors."""
    made = [tensor(name, name in binary) for name in order]
    envelope = {
        "inputs": [each for each, _ in made],
        "outputs": [requested_output(name, False) for name in TENSORS],
    }
    reply = rest.post(envelope, *(blob for _, blob in made))
    success(reply)
    got = {
        each["name"]: (each["datatype"], each["shape"], each["data"])
        for each in reply.json["outputs"]
    }
    assert got == {f"{name}_out": values for name, values in TENSORS.items()}


@pytest.mark.parametrize("binary", SUBSETS, ids=lambda names: "+".join(sorted(names)) or "none")
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_mixed_outputs(rest: Rest, order: list[str], binary: set[str]) -> None:
    """B3: binary and JSON outputs mix in any order. R16 checks their order."""
    inputs = [tensor(name, False)[0] for name in TENSORS]
    reply = rest.post(
        {"inputs": inputs, "outputs": [requested_output(name, name in binary) for name in order]}
    )
    body, blobs = read(reply) if binary else (reply.json, b"")
    assert {each["name"] for each in body["outputs"]} == {f"{name}_out" for name in order}
    for output in body["outputs"]:
        name = output["name"].removesuffix("_out")
        datatype, _, values = TENSORS[name]
        if name in binary:
            assert "data" not in output
            size = output["parameters"]["binary_data_size"]
            assert blobs[:size] == pack(datatype, values)
            blobs = blobs[size:]
        else:
            assert output["data"] == values
    assert blobs == b""


@pytest.mark.parametrize("blob", [case[0] for case in TORN_BYTES])
def test_bytes_elements(rest: Rest, blob: bytes) -> None:
    """B5: elements of BYTES must fill the binary data exactly, and match the number in the shape."""
    error_message(send(rest, "bytes", "BYTES", [2], blob), 400)
    check_next_request(rest)


@pytest.mark.parametrize("default", [None, False, True])
@pytest.mark.parametrize("wanted", [None, False, True])
def test_output_parameters(rest: Rest, default: bool | None, wanted: bool | None) -> None:
    """B6: binary_data on an output overrides binary_data_output on the request. The default is JSON."""
    parameters = {} if default is None else {"parameters": {"binary_data_output": default}}
    inputs = [tensor(name, False)[0] for name in ("int16", "pairs")]
    reply = rest.post(
        {
            "inputs": inputs,
            **parameters,
            "outputs": [requested_output("int16", wanted), requested_output("pairs", None)],
        }
    )
    expected = [bool(default if wanted is None else wanted), bool(default)]
    body = read(reply)[0] if any(expected) else reply.json
    assert ["data" not in each for each in body["outputs"]] == expected


@pytest.mark.parametrize("outputs", [{}, {"outputs": None}, {"outputs": []}], ids=repr)
def test_all_outputs_are_binary(rest: Rest, outputs: dict[str, Any]) -> None:
    """B6: without a list of outputs, binary_data_output applies to all outputs."""
    envelope = {
        "inputs": [json_input(*SMALL)],
        "parameters": {"binary_data_output": True},
        **outputs,
    }
    body, blobs = read(rest.post(envelope))
    assert all("data" not in each for each in body["outputs"])
    assert sum(each["parameters"]["binary_data_size"] for each in body["outputs"]) == len(blobs)
    assert blobs == struct.pack("<2f", *SMALL[3])


@pytest.mark.parametrize("binary", [1, "true", [], 0.0], ids=repr)
def test_invalid_binary_parameters(rest: Rest, binary: Any) -> None:
    """B6: a binary_data or binary_data_output other than true or false is rejected."""
    output = {"name": "fp32_out", "parameters": {"binary_data": binary}}
    error_message(rest.post({"inputs": [json_input(*SMALL)], "outputs": [output]}), 400)
    error_message(
        rest.post({"inputs": [json_input(*SMALL)], "parameters": {"binary_data_output": binary}}),
        400,
    )


def test_binary_response(target: Target, rest: Rest) -> None:
    """B7: a binary response has its media type and lengths in headers, and the usual JSON members."""
    made, blob = tensor("int16")
    reply = rest.post({"id": "42", "inputs": [made], "outputs": [requested_output("int16")]}, blob)
    body, blobs = read(reply)
    assert (reply.mimetype, reply.content_length) == ("application/octet-stream", len(reply.data))
    assert blobs == blob
    (output,) = body["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("int16_out", "INT16", [3])
    assert output["parameters"]["binary_data_size"] == len(blob)
    assert (body["model_name"], body["id"]) == (target.model, "42")


def test_response_without_binary_outputs(rest: Rest) -> None:
    """B7: a response without binary outputs is plain JSON without a header length."""
    made, blob = tensor("int16")
    reply = rest.post({"inputs": [made], "outputs": [requested_output("int16", False)]}, blob)
    assert success(reply).mimetype == "application/json"
    assert LENGTH not in reply.headers


def test_empty_binary_output(rest: Rest) -> None:
    """B7: an output without elements has a binary_data_size of 0."""
    body, blobs = read(send(rest, "fp32", "FP32", [0], b""))
    assert (body["outputs"][0]["parameters"]["binary_data_size"], blobs) == (0, b"")


def test_error_with_binary_output(rest: Rest) -> None:
    """B7, R19: an error response is JSON, even if binary output was requested."""
    made, blob = tensor("int16", datatype="INT32")
    reply = rest.post({"inputs": [made], "parameters": {"binary_data_output": True}}, blob)
    error_message(reply, 400)
    assert LENGTH not in reply.headers
