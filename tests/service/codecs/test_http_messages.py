"""Requests as JSON and HTTP bodies, and responses read from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.codecs import StringCodec
from app.protocol.errors import InferenceError, InvalidInput
from app.protocol.types import (
    InferenceRequest,
    InferenceResponse,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)

LENGTH = "Inference-Header-Content-Length"


REQUEST = InferenceRequest(
    [
        RequestInput("x", "FP32", [2, 1], [1.5, float("nan")], {"content_type": "np"}),
        RequestInput("s", "BYTES", data=["é"]),
    ],
    id="7",
    parameters={"priority": 1},
    outputs=[RequestOutput("y", {"binary_data": False}), RequestOutput("z")],
)
ENVELOPE: dict[str, Any] = {
    "id": "7",
    "parameters": {"priority": 1},
    "outputs": [{"name": "y", "parameters": {"binary_data": False}}, {"name": "z"}],
    "inputs": [
        {
            "name": "x",
            "shape": [2, 1],
            "datatype": "FP32",
            "parameters": {"content_type": "np"},
            "data": [1.5, None],
        },
        {"name": "s", "shape": [1], "datatype": "BYTES", "data": ["é"]},
    ],
}


def test_to_json_and_to_dict_agree() -> None:
    """R7: to_dict, to_json and to_http without binary data produce the same JSON."""
    assert REQUEST.to_dict() == ENVELOPE
    assert json.loads(REQUEST.to_json()) == ENVELOPE
    assert REQUEST.to_http(binary=False) == (
        REQUEST.to_json(),
        {"Content-Type": "application/json"},
    )
    assert InferenceRequest([]).to_dict() == {"inputs": []}
    assert InferenceRequest([], id="").to_dict() == {"id": "", "inputs": []}


def test_to_http_sends_binary_data() -> None:
    """B3, B6: to_http appends binary data to the JSON, sets the length header and requests binary outputs."""
    body, headers = REQUEST.to_http()
    length = int(headers[LENGTH])
    head = json.loads(body[:length])
    assert headers == {"Content-Type": "application/octet-stream", LENGTH: str(length)}
    assert head["parameters"] == {"binary_data_output": True, "priority": 1}
    assert [each["parameters"] for each in head["inputs"]] == [
        {"content_type": "np", "binary_data_size": 8},
        {"binary_data_size": 6},
    ]
    assert body[length:] == np.array([1.5, np.nan], "<f4").tobytes() + b"\x02\0\0\0\xc3\xa9"
    assert REQUEST.parameters == {"priority": 1}
    assert "binary_data_size" not in REQUEST.inputs[0].parameters


def test_to_http_sends_named_tensors_as_binary() -> None:
    """B3, B6: to_http sends only the named tensors as binary data and keeps the request's own binary_data_output."""
    asking = InferenceRequest(REQUEST.inputs, parameters={"binary_data_output": False})
    body, headers = asking.to_http({"s"})
    head = json.loads(body[: int(headers[LENGTH])])
    assert head["parameters"] == {"binary_data_output": False}
    assert head["inputs"][0]["data"] == [1.5, None]
    assert head["inputs"][1]["parameters"] == {"binary_data_size": 6}
    assert len(body) == int(headers[LENGTH]) + 6


@pytest.mark.parametrize(
    ("data", "datatype"),
    [
        ([float("inf")], "FP32"),
        ([float("-inf")], "FP16"),
        ([float("inf")], "BF16"),
        ([b"\xff"], "BYTES"),
        (["\ud800"], "BYTES"),
    ],
)
def test_json_rejects_infinity_and_invalid_text(data: list, datatype: str) -> None:
    """R12, R14: every JSON form rejects infinity and bytes that are not UTF-8."""
    sent = InferenceRequest([RequestInput("x", datatype, data=data)])
    for write in (sent.to_json, sent.to_dict, lambda: sent.to_http(binary=False)):
        with pytest.raises(InvalidInput):
            write()


RESPONSE = InferenceResponse(
    [
        ResponseOutput("y", "FP32", data=[1.5, float("nan")]),
        ResponseOutput("z", "BYTES", data=["a"], parameters={"k": 1}),
    ],
    "m",
    "3",
    "7",
    {"content_type": "np"},
)


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
@pytest.mark.parametrize("binary", [True, False, {"z"}])
def test_from_http_reads_what_to_http_writes(spell: Callable[[str], str], binary: Any) -> None:
    """R8, B7: from_http reads the output of to_http, with header names in any case."""
    body, headers = RESPONSE.to_http(binary)
    read = InferenceResponse.from_http(
        body, {spell(name): value for name, value in headers.items()}
    )
    assert (read.model_name, read.model_version, read.id, read.parameters) == (
        "m",
        "3",
        "7",
        {"content_type": "np"},
    )
    assert [(each.name, each.datatype, each.shape) for each in read.outputs] == [
        ("y", "FP32", [2]),
        ("z", "BYTES", [1]),
    ]
    np.testing.assert_array_equal(read.outputs[0].data, np.array([1.5, np.nan], "f4"))
    assert StringCodec.decode_output(read.outputs[1]) == ["a"]
    assert read.outputs[1].parameters["k"] == 1
    assert StringCodec.decode_output(
        InferenceResponse.from_dict(RESPONSE.to_dict()).outputs[1]
    ) == ["a"]


def test_from_dict_needs_only_outputs() -> None:
    """R8: a response needs only `outputs`, and its data may be nested."""
    tensor = {"name": "y", "datatype": "INT8", "shape": [2, 1], "data": [[1], [2]]}
    read = InferenceResponse.from_dict(
        {"outputs": [tensor], "id": None, "parameters": None, "more": 1}
    )
    assert read.outputs[0].data.tolist() == [[1], [2]]
    assert (read.id, read.parameters) == (None, {})


@pytest.mark.parametrize("text", ["no such model", ""])
def test_from_http_raises_the_servers_error(text: str) -> None:
    """R19: an error body raises InferenceError with the server's message, not InvalidInput."""
    with pytest.raises(InferenceError) as caught:
        InferenceResponse.from_http(
            json.dumps({"error": text}).encode(), {"Content-Type": "application/json"}
        )
    assert (type(caught.value), str(caught.value)) == (InferenceError, text)
    with pytest.raises(InferenceError) as caught:
        InferenceResponse.from_dict({"error": text})
    assert str(caught.value) == text


GOOD: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}


def with_output(**changes: Any) -> Any:
    return {"outputs": [{**GOOD, **changes}]}


@pytest.mark.parametrize(
    "payload",
    [
        None, [], 5, "a", {}, {"outputs": None}, {"outputs": 5}, {"outputs": "a"}, {"outputs": {}},
        {"outputs": {"y": GOOD}}, {"outputs": [None]}, {"outputs": [[]]}, {"outputs": [{}]}, {"outputs": ["y"]},
        *({"outputs": [{key: value for key, value in GOOD.items() if key != missing}]} for missing in GOOD),
        with_output(name=5), with_output(name=None), with_output(name=[]),
        with_output(datatype="fp32"), with_output(datatype=None), with_output(datatype=[]),
        with_output(shape=[2]), with_output(shape=[-1]), with_output(shape=1), with_output(shape=[1.0]),
        with_output(shape=None), with_output(shape=[[1]]), with_output(shape=[0, 2**62], data=[]),
        with_output(data=["a"]), with_output(data=[[1.0], []]), with_output(data={}), with_output(data=[1e39]),
        with_output(parameters=[1]), with_output(parameters="a"), with_output(parameters=5),
        *(with_output(data=None, parameters={"binary_data_size": size}) for size in ("4", 4.0, -4, True, 4, [4])),
        with_output(parameters={"binary_data_size": 0}),
        {"outputs": [], "parameters": [1]},
    ],
    ids=lambda payload: json.dumps(payload)[:100],
)  # fmt: skip
def test_rejects_malformed_responses(payload: Any) -> None:
    """R8, R9, B2: a malformed response raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_dict(payload)
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(json.dumps(payload).encode(), {})


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"NaN", b"<html>", b"[" * 70 + b"]" * 70])
def test_rejects_response_bodies_that_are_not_json(body: bytes) -> None:
    """R12, R20: a response body that is not JSON raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(body, {})


@pytest.mark.parametrize("stated", ["abc", "", "5.0", "-1", "5", "0", "9999", "+5", "1e2"])
def test_rejects_invalid_length_headers(stated: str) -> None:
    """B4: an Inference-Header-Content-Length that is invalid or does not match the body raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(RESPONSE.to_json(), {LENGTH: stated})


@pytest.mark.parametrize(("cut", "more"), [(1, b""), (4, b""), (0, b"\0"), (0, bytes(8))])
def test_rejects_short_and_trailing_binary_data(cut: int, more: bytes) -> None:
    """B5: binary data that is too short or too long raises InvalidInput."""
    body, headers = RESPONSE.to_http()
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(body[: len(body) - cut] + more, headers)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("UINT8", [300]),
        ("UINT8", np.array([300])),
        ("INT32", [1.5]),
        ("INT32", np.array([1.5])),
        ("BOOL", ["False"]),
        ("FP32", ["a"]),
        ("FP32", np.array([1e39])),
        ("FP32", [[1], [1, 2]]),
        ("INT64", [None]),
        ("BYTES", [1]),
    ],
)
def test_rejects_values_outside_the_datatype(datatype: str, data: Any) -> None:
    """R11: creating an input raises InvalidInput if the datatype cannot represent a value exactly."""
    with pytest.raises(InvalidInput):
        RequestInput("x", datatype, data=data)


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [
        ("FP32", [3], [1, 2]),
        ("FP32", [-1], [1]),
        ("FP32", [2.0, 1], [1]),
        ("fp32", [1], [1]),
        ("FP32", [0, 2**62], []),
    ],
)
def test_rejects_invalid_shapes_and_datatypes(datatype: str, shape: list, data: list) -> None:
    """R1, R9: creating an input raises InvalidInput if the datatype is unknown or the shape does not match the data."""
    with pytest.raises(InvalidInput):
        RequestInput("x", datatype, shape, data)
