"""The Binary Tensor Data Extension over REST."""

from __future__ import annotations

import json
import math
import struct
from itertools import permutations, product
from typing import Any

import pytest

from oip_conformance.values import ON_THE_WIRE, TORN_BYTES
from oip_conformance.wires import error_message, pack
from tests.service.protocol.binary_requests import LENGTH, TENSORS, send, tensor, wrong_size

SUBSETS = [
    set(names)
    for size in range(4)
    for names in permutations("abc", size)
    if list(names) == sorted(names)
]
ORDERS = list(permutations("abc"))


@pytest.fixture(autouse=True)
def check_valid_request_afterward(service):
    """R20: the service still accepts a valid request after each test."""
    yield
    response = service.forms["rest binary"].infer([("a", "INT16", [1], [5])], ["a"])
    assert response.outputs == {"a": ("INT16", [1], [5])}


def read(response: Any) -> tuple[dict[str, Any], bytes]:
    """Return the JSON and the binary data of a response with binary outputs (B7)."""
    assert response.status_code == 200, response.data
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Length"] == str(len(response.data))
    length = int(response.headers[LENGTH])
    return json.loads(response.data[:length]), response.data[length:]


@pytest.mark.parametrize(
    ("datatype", "shape", "blob", "data"),
    ON_THE_WIRE,
)
def test_binary_data_is_little_endian(
    echoes, datatype: str, shape: list[int], blob: str, data: list
) -> None:
    """B1: in requests and responses, elements are little-endian, row-major and without padding."""
    octets = bytes.fromhex(blob)
    envelope, blobs = read(send(echoes, datatype, shape, octets))
    assert blobs == octets
    assert envelope["outputs"] == [
        {
            "name": "y",
            "datatype": datatype,
            "shape": shape,
            "parameters": {"binary_data_size": len(octets)},
        }
    ]
    head = {
        "name": "x",
        "datatype": datatype,
        "shape": shape,
        "parameters": {"binary_data_size": len(octets)},
    }
    response = echoes(datatype, *[-1] * len(shape)).rest.post({"inputs": [head]}, octets)
    assert response.json["outputs"][0]["data"] == data


EITHER = 'Input "a": invalid data. Expected either data or binary_data_size'


@pytest.mark.parametrize("octet", [2, 127, 128, 255])
def test_rejects_bool_bytes_other_than_0_and_1(echoes, octet: int) -> None:
    """B1: a BOOL byte other than 0 or 1 is rejected."""
    text = error_message(send(echoes, "BOOL", [3], bytes([1, octet, 0])), 400)
    assert (
        text
        == f'Input "x": invalid data. Expected bytes with the value 0 or 1 for BOOL, got {octet}.'
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (True, "got true."),
        (False, "got false."),
        ("16", 'got "16".'),
        (16.0, "got 16.0."),
        (-4, "got -4."),
        (10**20, "got 1e+20."),
        ([16], "got [16]."),
        ({}, "got {}."),
    ],
)
def test_rejects_invalid_binary_data_size(service, size: Any, text: str) -> None:
    """B2: a binary_data_size that is not an integer of at least 0 is rejected."""
    head, blob = tensor("a", True, parameters={"binary_data_size": size})
    message = error_message(service.rest.post({"inputs": [head]}, blob), 400)
    assert message.startswith('Input "a": invalid parameter "binary_data_size". Expected ')
    assert message.endswith(text)


def test_rejects_data_with_binary_data_size(service) -> None:
    """B2: an input with both data and binary_data_size is rejected."""
    head, blob = tensor("a", True, data=[1, -2, 300])
    assert error_message(service.rest.post({"inputs": [head]}, blob), 400).startswith(
        f"{EITHER}, got both"
    )
    head, _ = tensor("a", True, data=[], shape=[0], parameters={"binary_data_size": 0})
    assert error_message(service.rest.post({"inputs": [head]}, b""), 400).startswith(
        f"{EITHER}, got both"
    )


def test_rejects_inputs_without_data(service) -> None:
    """B2: an input without data and binary_data_size is rejected, even if its shape has no elements."""
    for shape in ([3], [0]):
        head, _ = tensor("a", True, parameters={}, shape=shape)
        assert error_message(service.rest.post({"inputs": [head]}), 400).startswith(
            f"{EITHER}, got neither"
        )


@pytest.mark.parametrize("binary", SUBSETS, ids=lambda names: "".join(sorted(names)))
@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_mixes_binary_and_json_inputs(service, order: tuple[str, ...], binary: set[str]) -> None:
    """B3: binary and JSON inputs can be mixed in any order. Binary data follows in the order of the tensors."""
    tensors = [tensor(name, name in binary) for name in order]
    response = service.rest.post(
        {"inputs": [head for head, _ in tensors]}, *[blob for _, blob in tensors]
    )
    assert response.status_code == 200, response.json
    assert {
        each["name"]: (each["datatype"], each["shape"], each["data"])
        for each in response.json["outputs"]
    } == TENSORS


@pytest.mark.parametrize("binary", SUBSETS, ids=lambda names: "".join(sorted(names)))
@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_mixes_binary_and_json_outputs(service, order: tuple[str, ...], binary: set[str]) -> None:
    """B3, B7: binary and JSON outputs can be mixed in any order. Each binary output has its size."""
    outputs = [{"name": name, "parameters": {"binary_data": name in binary}} for name in order]
    inputs = [tensor(name, False)[0] for name in TENSORS]
    response = service.rest.post({"inputs": inputs, "outputs": outputs})
    if not binary:
        assert response.mimetype == "application/json"
        assert LENGTH not in response.headers
    envelope, blobs = read(response) if binary else (response.json, b"")
    assert [each["name"] for each in envelope["outputs"]] == list(order)
    for each in envelope["outputs"]:
        datatype, shape, values = TENSORS[each["name"]]
        assert (each["datatype"], each["shape"]) == (datatype, shape)
        if each["name"] in binary:
            size = each["parameters"]["binary_data_size"]
            assert "data" not in each
            assert blobs[:size] == pack(datatype, values)
            blobs = blobs[size:]
        else:
            assert each["data"] == values
            assert "binary_data_size" not in each.get("parameters", {})
    assert blobs == b""


@pytest.mark.parametrize(
    ("blob", "text"),
    TORN_BYTES,
)
def test_rejects_invalid_bytes_elements(echoes, blob: bytes, text: str) -> None:
    """B5: BYTES elements must fill the binary data exactly, and their count must match the shape."""
    message = error_message(send(echoes, "BYTES", [2], blob), 400)
    assert message.startswith('Input "x": ')
    assert text in message


@pytest.mark.parametrize(
    ("default", "wanted", "expected"),
    [
        (default, wanted, default if wanted is None else wanted)
        for default, wanted in product([None, False, True], [None, False, True])
    ],
)
def test_binary_data_overrides_binary_data_output(
    service, default: bool | None, wanted: bool | None, expected: bool | None
) -> None:
    """B6: binary_data on an output overrides binary_data_output on the request. The default is JSON."""
    parameters = {} if default is None else {"parameters": {"binary_data_output": default}}
    output = (
        {"name": "c"} if wanted is None else {"name": "c", "parameters": {"binary_data": wanted}}
    )
    response = service.rest.post(
        {"inputs": [tensor("c", False)[0]], **parameters, "outputs": [output, {"name": "a"}]}
    )
    envelope = read(response)[0] if expected or default else response.json
    assert ["data" in each for each in envelope["outputs"]] == [not expected, not default]


@pytest.mark.parametrize("outputs", [None, []])
def test_binary_data_output_applies_to_all_outputs(service, outputs: list | None) -> None:
    """B6: binary_data_output applies to all outputs if the request lists none."""
    envelope = {"inputs": [], "parameters": {"binary_data_output": True}, "outputs": outputs}
    body, blobs = read(service.rest.post(envelope))
    assert [each["parameters"]["binary_data_size"] for each in body["outputs"]] == [0, 0, 0]
    assert blobs == b""


@pytest.mark.parametrize("request_id", ["", "42", None])
def test_binary_response_has_the_usual_json(service, request_id: str | None) -> None:
    """B7, R8: the JSON of a binary response has the same members as a JSON response."""
    envelope = {
        "id": request_id,
        "inputs": [],
        "outputs": [{"name": "a", "parameters": {"binary_data": True}}],
    }
    body, blobs = read(service.rest.post(envelope))
    assert body == {
        "model_name": "test",
        "model_version": "1",
        **({} if request_id is None else {"id": request_id}),
        "outputs": [
            {"name": "a", "datatype": "INT16", "shape": [0], "parameters": {"binary_data_size": 0}}
        ],
    }
    assert blobs == b""


def test_small_binary_responses_are_not_compressed(service) -> None:
    """B7, R18: a small binary response has a correct Content-Length and is not compressed, despite Accept-Encoding."""
    head, blob = tensor("a", True)
    envelope = {"inputs": [head], "parameters": {"binary_data_output": True}}
    response = service.rest.post(envelope, blob, Accept_Encoding="gzip, deflate")
    assert response.headers["Content-Length"] == str(len(response.data))
    assert "Content-Encoding" not in response.headers
    assert read(response)[1].startswith(blob)


def test_errors_are_json_despite_binary_output(service) -> None:
    """R19: an error response is JSON, even if the request asks for binary output."""
    head, blob = tensor("a", True, datatype="INT32")
    response = service.rest.post(
        {"inputs": [head], "parameters": {"binary_data_output": True}}, blob
    )
    assert LENGTH not in response.headers
    assert error_message(response, 400) == wrong_size("a", 6, "INT32 [3]", 12)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0])
def test_keeps_every_bit_of_floats(echoes, value: float) -> None:
    """B1: binary data keeps every bit of a float, including the bits of NaN."""
    blob = struct.pack("<ddQ", value, 5e-324, 0x7FF0000000000001)
    assert read(send(echoes, "FP64", [3], blob))[1] == blob
