"""Requests and responses in a client: as dicts, as JSON and as HTTP bodies, with the service's errors."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Mapping
from http.client import HTTPMessage
from typing import Any

import numpy as np
import pytest
from requests.structures import CaseInsensitiveDict
from werkzeug.datastructures import Headers

from app.api import (
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InvalidInput,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)
from app.protocol.datatypes import DATATYPES
from tests.kit import models
from tests.kit.changed_bodies import GOOD, INFER, bodies

NUMBERS = {
    name: np.array([[0, 1], [1, 0]], datatype.dtype)
    for name, datatype in DATATYPES.items()
    if name != "BYTES"
}
ARRAYS: dict[str, tuple[str, Any]] = {
    **{name: (name, array) for name, array in NUMBERS.items()},
    "NaN": ("FP16", np.array([1.5, np.nan], "f2")),
    "empty": ("FP32", np.empty((0, 3), "f4")),
    "scalar": ("INT64", np.array(5)),
    "text": ("BYTES", np.array(["", "naïve ☃", "a\nb"], object)),
    "empty text": ("BYTES", np.empty((2, 0), object)),
}
INPUT = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.5, None]}
OUTPUT = {
    "name": "y",
    "shape": [2, 1],
    "datatype": "BYTES",
    "parameters": {"content_type": "str"},
    "data": ["a", "b"],
}
RESPONSE = {
    "model_name": "m",
    "model_version": "3",
    "id": "7",
    "parameters": {"content_type": "np"},
}


def request_of(datatype: str, array: Any) -> InferenceRequest:
    outputs = [RequestOutput("y", {"binary_data": True}), RequestOutput("z")]
    tensors = [
        RequestInput("x", datatype, data=array, parameters={"content_type": "np"}),
        RequestInput("n", "INT8", [], 5),
    ]
    return InferenceRequest(tensors, id="1", parameters={"a": 1}, outputs=outputs)


def response_of(datatype: str, array: Any) -> InferenceResponse:
    return InferenceResponse([ResponseOutput("y", datatype, data=array)], "m", "3", "7", {"a": 1.5})


def same(one: Any, other: Any, extra: Mapping[str, Any]) -> None:
    """Check that two messages have equal members, and tensors of equal values. The other has the parameters `extra`."""
    for name in ("id", "model_name", "model_version"):
        assert getattr(one, name) == getattr(other, name)
    assert {**extra, **one.parameters} == other.parameters
    for member in ("inputs", "outputs"):
        for tensor, other_tensor in zip(
            getattr(one, member, []), getattr(other, member, []), strict=True
        ):
            assert (tensor.name, tensor.parameters) == (other_tensor.name, other_tensor.parameters)
            if not isinstance(tensor, RequestOutput):
                assert (tensor.datatype, tensor.shape) == (
                    other_tensor.datatype,
                    other_tensor.shape,
                )
                assert texts(tensor.data) == texts(other_tensor.data)


def texts(array: np.ndarray) -> list[str]:
    elements = array.ravel().tolist()
    return [
        element.decode()
        if isinstance(element, bytes)
        else repr(element)
        if array.dtype != object
        else element
        for element in elements
    ]


@pytest.mark.parametrize("make", [request_of, response_of])
@pytest.mark.parametrize("name", ARRAYS)
def test_round_trips(name: str, make: Callable[..., Any]) -> None:
    """R10, R12, R13, B1: dicts, JSON and bodies with binary data of every datatype become the same message again."""
    message = make(*ARRAYS[name])
    kind = type(message)
    text = message.to_json()
    same(message, kind.from_dict(message.to_dict()), {})
    same(message, kind(**message.to_dict()), {})
    same(message, kind.from_http(*message.to_http(binary=False)), {})
    same(message, kind.from_http(text.decode()), {})
    parameters = {"binary_data_output": True} if kind is InferenceRequest else {}
    same(message, kind.from_http(*message.to_http()), parameters)
    same(message, kind.from_http(*message.to_http({"x", "y"})), parameters)
    assert kind.from_dict(message.to_dict()).to_json() == text
    assert message.to_json() == text


@pytest.mark.parametrize("kind", [dict, CaseInsensitiveDict, Headers, HTTPMessage])
@pytest.mark.parametrize("make", [request_of, response_of])
def test_from_http_accepts_headers_of_libraries(kind: Any, make: Callable[..., Any]) -> None:
    """B4: from_http reads the header in any case from a dict and from the classes of requests and http.client."""
    message = make(*ARRAYS["text"])
    body, written = message.to_http()
    headers = kind()
    for name, value in written.items():
        headers[name.lower()] = value
    assert type(message).from_http(body, headers).to_http() == (body, written)


def error_of(read: Callable[..., Any], *arguments: Any) -> str | None:
    """Return the message of the InvalidInput that a call raises, or None if it returns."""
    try:
        read(*arguments)
    except InvalidInput as error:
        return str(error)
    return None


def test_from_dict_has_the_errors_of_the_service(serve) -> None:
    """R7, R9, R17, R19, B2: from_dict and from_http reject what the service rejects, with its error messages."""
    client = serve(models.two_by_two()).client
    messages = []
    for body in bodies():
        response = client.post(INFER, data=body)
        message = error_of(InferenceRequest.from_dict, json.loads(body))
        assert error_of(InferenceRequest.from_http, body) == message
        if message is None:  # only the comparison with METADATA can fail
            again = InferenceRequest.from_http(body).to_json()
            assert client.post(INFER, data=again).data == response.data, body
        else:
            assert (response.status_code, response.json) == (400, {"error": message}), body
            messages.append(message)
    assert len(messages) >= 100


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"inputs": [NaN]}', b"[" * 70 + b"]" * 70, json.dumps(GOOD).encode()],
)
@pytest.mark.parametrize("length", [None, "", "5", "x", "100000"])
def test_from_http_has_the_errors_of_the_service(serve, body: bytes, length: str | None) -> None:
    """R12, R20, B3, B4: a malformed body or header raises InvalidInput with the service's error message."""
    headers = {} if length is None else {"Inference-Header-Content-Length": length}
    response = serve(models.two_by_two()).client.post(INFER, data=body, headers=headers)
    assert response.json.get("error") == error_of(InferenceRequest.from_http, body, headers)


def test_to_dict_equals_the_response_of_the_service(serve) -> None:
    """R8, R13: to_dict of a response returns the members that the service sends as JSON."""
    service = serve(models.several())
    sent = InferenceRequest(
        [RequestInput("c", "FP32", data=[[25.12, np.nan]]), RequestInput("b", "BYTES", data=["é"])],
        id="",
    )
    response = service.client.post(INFER, json=sent.to_dict())
    assert InferenceResponse.from_http(response.data, response.headers).to_dict() == response.json
    assert response.json["outputs"][2]["data"] == [25.12, None]
    body, headers = sent.to_http()
    binary = service.client.post(INFER, data=body, headers=headers)
    assert InferenceResponse.from_http(binary.data, binary.headers).to_dict() == response.json


def test_constructors_accept_json_objects() -> None:
    """R7, R8, R17: the members of a JSON object can be keyword arguments, and null counts as absent."""
    request = InferenceRequest(inputs=[INPUT], outputs=[{"name": "y"}], parameters=None, id=None)
    assert request.to_dict() == {"inputs": [INPUT], "outputs": [{"name": "y"}]}
    assert InferenceRequest([RequestInput(**OUTPUT)], outputs=None).outputs == []
    response = InferenceResponse(**RESPONSE, outputs=[OUTPUT])
    assert response.to_dict() == {**RESPONSE, "outputs": [OUTPUT]}
    assert (
        InferenceResponse(outputs=[OUTPUT], model_name=None, parameters=None).to_dict()[
            "model_name"
        ]
        == ""
    )


@pytest.mark.parametrize("text", ["no such model", ""])
@pytest.mark.parametrize(
    "read",
    [
        lambda body: InferenceResponse(**body),
        InferenceResponse.from_dict,
        lambda body: InferenceResponse.from_http(json.dumps(body).encode(), {}),
    ],
    ids=["constructor", "from_dict", "from_http"],
)
def test_error_of_the_service_is_raised(read: Callable[..., Any], text: str) -> None:
    """R19: reading the response of a failed request raises InferenceError with the server's message."""
    with pytest.raises(InferenceError) as caught:
        read({"error": text})
    assert (type(caught.value), str(caught.value)) == (InferenceError, text)


def test_to_http_sends_named_tensors_as_binary() -> None:
    """B3, B6: to_http sends only the named tensors as binary data and keeps the request's own binary_data_output."""
    tensors = [RequestInput("x", "FP32", data=[1.5]), RequestInput("s", "BYTES", data=["é"])]
    request = InferenceRequest(tensors, parameters={"binary_data_output": False})
    body, headers = request.to_http({"s"})
    length = int(headers["Inference-Header-Content-Length"])
    head = json.loads(body[:length])
    assert head["parameters"] == {"binary_data_output": False}
    assert head["inputs"][0]["data"] == [1.5]
    assert head["inputs"][1]["parameters"] == {"binary_data_size": 6}
    assert body[length:] == b"\x02\0\0\0\xc3\xa9"


VALID = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}
# Members of an output that are not valid.
INVALID_MEMBERS: dict[str, list[Any]] = {
    "name": [5, None, []],
    "datatype": ["fp32", None, []],
    "shape": [[2], [-1], 1, [1.0], None, [[1]]],
    "data": [["a"], [[1.0], []], {}, [1e39], None],
    "parameters": [[1], "a", 5, {"binary_data_size": 0}],
}
MALFORMED: list[Any] = [
    *(None, [], 5, "a", {}),
    *(
        {"outputs": outputs}
        for outputs in (None, 5, "a", {}, {"y": VALID}, [None], [[]], [{}], ["y"])
    ),
    *({"outputs": [{**VALID, name: value}]} for name in VALID for value in INVALID_MEMBERS[name]),
    *({"outputs": [{**VALID, "parameters": value}]} for value in INVALID_MEMBERS["parameters"]),
    *(
        {"outputs": [{**VALID, "data": None, "parameters": {"binary_data_size": size}}]}
        for size in ("4", 4.0, -4, True, 4, [4])
    ),
    *(
        {"outputs": [{member: VALID[member] for member in VALID if member != name}]}
        for name in VALID
    ),
    {"outputs": [{**VALID, "shape": [0, 2**62], "data": []}]},
    {"outputs": [], "parameters": [1]},
]


@pytest.mark.parametrize("payload", MALFORMED, ids=lambda payload: json.dumps(payload)[:100])
def test_rejects_malformed_responses(payload: Any) -> None:
    """R8, R9, B2: a malformed response raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_dict(payload)
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(json.dumps(payload).encode(), {})


BINARY, LENGTH = InferenceResponse([ResponseOutput("y", "FP32", data=[1.5])], "m").to_http()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        *((body, {}) for body in (b"", b"{", b"\xff", b"NaN", b"<html>", b"[" * 70 + b"]" * 70)),
        *((body, LENGTH) for body in (BINARY[:-1], BINARY[:-4], BINARY + b"\0", BINARY + bytes(8))),
        *(
            (BINARY, dict.fromkeys(LENGTH, length))
            for length in ("abc", "", "5.0", "-1", "5", "0", "9999", "+5", "1e2")
        ),
    ],
)
def test_rejects_malformed_response_bodies(body: bytes, headers: dict[str, str]) -> None:
    """R12, R20, B4, B5: a body that is not JSON, or whose lengths are wrong, raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(body, headers)


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [
        ("UINT8", None, np.array([300])),
        ("INT32", None, np.array([1.5])),
        ("FP32", None, np.array([1e39])),
        ("FP32", None, [[1], [1, 2]]),
        ("INT64", None, [None]),
        ("BYTES", None, [1]),
        ("FP32", [3], [1, 2]),
        ("FP32", [2.0, 1], [1]),
        ("fp32", [1], [1]),
        ("FP32", [0, 2**62], []),
    ],
)
def test_constructors_reject_invalid_tensors(datatype: str, shape: Any, data: Any) -> None:
    """R1, R9, R11: an input whose datatype cannot represent its values, or whose shape does not match, is rejected."""
    with pytest.raises(InvalidInput):
        RequestInput("x", datatype, shape, data)


def test_constructors_reject_invalid_objects() -> None:
    """R9, R11: a JSON object in a constructor is validated, and the error names the tensor."""
    with pytest.raises(InvalidInput, match='^Input "x": invalid shape'):
        InferenceRequest([{**INPUT, "shape": [-1]}])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match='^Output "y": wrong number of elements'):
        InferenceResponse(outputs=[{**OUTPUT, "data": ["a"]}])


def test_responses_may_have_parameters_beyond_the_protocol() -> None:
    """R17: parameters in a response of another server can be objects. binary_data_size is validated."""
    read = InferenceResponse.from_dict(
        {"outputs": [OUTPUT], "parameters": {"meta": {"online": None}, "version": None}}
    )
    assert read.parameters == {"meta": {"online": None}}
    with pytest.raises(InvalidInput, match='^Output "y": invalid parameter "binary_data_size"'):
        InferenceResponse.from_dict(
            {"outputs": [{**OUTPUT, "parameters": {"binary_data_size": "4"}}]}
        )


@pytest.mark.parametrize(
    "convert", [lambda parameters: parameters, lambda parameters: dict(parameters)]
)
def test_parameters_are_attributes(convert: Callable[..., Any]) -> None:
    """C1: content_type is an attribute of parameters, and None if absent."""
    given = convert(Parameters(content_type="np", other=1))
    tensor = RequestInput(**{**INPUT, "data": [1, 2]}, parameters=given)
    for message in (
        tensor,
        InferenceRequest([tensor], parameters=given),
        InferenceResponse([], parameters=given),
    ):
        assert (message.parameters.content_type, message.parameters.other) == ("np", 1)
        assert message.parameters.headers is None
        assert not hasattr(message.parameters, "unknown")
    read = InferenceRequest.from_dict(InferenceRequest([tensor], parameters=given).to_dict())
    assert read.parameters.content_type == read.inputs[0].parameters.content_type == "np"
    assert InferenceRequest([]).parameters.content_type is None
    for copied in (copy.deepcopy(read.parameters), pickle.loads(pickle.dumps(read.parameters))):
        assert (copied, copied.content_type) == (given, "np")


@pytest.mark.parametrize("shape", [[0, 3], (1, 2), np.array([5.1, 3.5])])
@pytest.mark.parametrize("make", [RequestInput, ResponseOutput])
def test_rejects_tensors_without_data(make: Any, shape: Any) -> None:
    """R9: an array as the third argument, which is the shape, gets an error message that names the remedy."""
    with pytest.raises(InvalidInput) as caught:
        make("x", "FP32", shape)
    assert str(caught.value) == (
        f'{make.kind.title()} "x": missing data. Use data=..., because the third argument is the shape.'
    )
