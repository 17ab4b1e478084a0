"""Whatever is sent, by chance or by malice, is answered as the rules say, and the next request works."""

from __future__ import annotations

import copy
import json
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from grpc_service import messages

from . import models
from .conftest import FORMS
from .wires import NUMPY, exact, pack, refusal

DATATYPES = [*NUMPY, "BYTES"]
CALLS = [method.name for method in messages.SERVICE.methods]
INFER = "/v2/models/test/infer"
LENGTH = "Inference-Header-Content-Length"

many = settings(max_examples=400, deadline=None, derandomize=True, database=None)
few = settings(many, max_examples=40)

ENVELOPE: dict[str, Any] = {
    "id": "42",
    "parameters": {"binary_data_output": False, "priority": 3},
    "inputs": [
        {"name": "a", "datatype": "INT16", "shape": [2], "parameters": {"binary_data_size": 4}},
        {"name": "b", "datatype": "BYTES", "shape": [2], "data": ["", "two"]},
        {"name": "c", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}},
    ],
    "outputs": [{"name": "c", "parameters": {"binary_data": True}}, {"name": "b"}],
}
BLOBS = pack("INT16", [1, -2]) + pack("FP32", [0.5, 25.12])
MESSAGE = messages.ModelInferRequest(
    model_name="test",
    model_version="1",
    id="42",
    inputs=[
        {"name": "a", "datatype": "INT16", "shape": [2], "contents": {"int_contents": [1, -2]}},
        {"name": "b", "datatype": "BYTES", "shape": [2], "contents": {"bytes_contents": [b"", b"two"]}},
        {"name": "c", "datatype": "FP32", "shape": [1, 2], "contents": {"fp32_contents": [0.5, 25.12]}},
    ],
    outputs=[{"name": "c"}, {"name": "b"}],
).SerializeToString()

words = st.sampled_from(["a", "b", "c", "x", "name", "data", "shape", "binary_data_size", "binary_data", *DATATYPES])
numbers = st.one_of(
    st.integers(),
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64]),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words, st.text(max_size=5))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
# What a header holds when it reaches the service: any byte but those that end it.
header_texts = st.one_of(
    st.integers(-5, 600).map(str),
    st.integers().map(str),
    st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30),
)


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.several(), max_request_bytes=100_000)


def fine_or_refused(response: Any) -> None:
    """Either an answer or a refusal in JSON, never a 5xx (R19)."""
    if response.status_code != 200:
        assert response.status_code in (400, 404, 413, 415), response.data
        assert refusal(response, response.status_code)


def still_works(service) -> None:
    """The service answers as ever, over REST and gRPC."""
    for form in ("rest binary", "grpc typed"):
        answer = service.forms[form].infer([("a", "INT16", [1], [5])], ["a"])
        assert answer.outputs == {"a": ("INT16", [1], [5])}


@many
@given(body=st.one_of(st.binary(max_size=300), values.map(json.dumps)), stated=st.none() | header_texts)
def test_any_body(service, body: Any, stated: str | None) -> None:
    """R19, R20, B4: any bytes as the body, with any header length, are refused or answered."""
    headers = {} if stated is None else {LENGTH: stated}
    fine_or_refused(service.client.post(INFER, data=body, headers=headers))
    still_works(service)


@few
@given(body=st.binary(max_size=200), coding=st.sampled_from(["gzip", "deflate"]) | header_texts)
def test_any_coding(service, body: bytes, coding: str) -> None:
    """R18, R19: any bytes under any Content-Encoding are refused or answered."""
    fine_or_refused(service.client.post(INFER, data=body, headers={"Content-Encoding": coding}))
    still_works(service)


@few
@given(
    path=st.lists(st.sampled_from(["v2", "models", "test", "versions", "1", "infer", "ready"]) | st.text(max_size=6)),
    method=st.sampled_from(["GET", "POST", "PUT", "OPTIONS"]),
)
def test_any_path(service, path: list[str], method: str) -> None:
    """R2, R19: any path is answered or refused in JSON."""
    octets = "/".join(["", *path]).encode()
    response = service.client.open(method=method, environ_overrides={"PATH_INFO": octets.decode("latin-1")})
    assert response.status_code in (200, 400, 404, 405), response.data
    if response.status_code != 200:
        assert refusal(response, response.status_code)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container within `value`, each with each of its keys."""
    found = []
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found += [(value, key), *places(value[key])]
    return found


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """The good envelope, after some of its members were replaced, removed, added or copied."""
    envelope = copy.deepcopy(ENVELOPE)
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(envelope) or [(envelope, "inputs")]))
        change = draw(st.sampled_from(["replace", "replace", "remove", "add", "copy"]))
        if change == "replace":
            container[key] = draw(values)
        elif change == "remove" and key in container:
            del container[key]
        elif change == "add" and isinstance(container, dict):
            container[draw(words)] = draw(values)
        elif change == "copy" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
    return envelope


@many
@given(envelope=envelopes(), blobs=st.just(BLOBS) | st.binary(max_size=20))
def test_mutated_envelopes(service, envelope: dict, blobs: bytes) -> None:
    """R19: a good request with a few members changed is refused or answered."""
    fine_or_refused(service.rest.post(envelope, blobs))
    still_works(service)


def mutated(good: bytes) -> st.SearchStrategy[bytes]:
    """`good`, after some of its bytes were replaced by others."""

    def change(edits: list[tuple[int, int, bytes]]) -> bytes:
        body = good
        for position, length, octets in edits:
            body = body[:position] + octets + body[position + length :]
        return body

    edit = st.tuples(st.integers(0, len(good)), st.integers(0, 3), st.binary(max_size=3))
    return st.lists(edit, min_size=1, max_size=3).map(change)


@many
@given(data=st.data())
def test_mutated_bodies(service, data: st.DataObject) -> None:
    """R19: a good body with a few bytes changed is refused or answered."""
    head = json.dumps(ENVELOPE).encode()
    body = data.draw(mutated(head + BLOBS))
    fine_or_refused(service.client.post(INFER, data=body, headers={LENGTH: str(len(head))}))
    still_works(service)


def called(service, call: str, body: bytes) -> None:
    """`call` answers, or ends as a malformed message or an unknown model does (G1)."""
    code, text = outcome(service, call, body)
    assert code in ("OK", "INVALID_ARGUMENT", "NOT_FOUND"), text
    assert text or code == "OK"


def outcome(service, call: str, body: bytes) -> tuple[str, str]:
    """The status that `call` ends with, and its text."""
    try:
        return "OK", repr(service.grpc.call(call, body))
    except grpc.RpcError as error:
        return error.code().name, error.details()


@many
@given(call=st.sampled_from(CALLS), body=st.binary(max_size=100))
def test_any_message(service, call: str, body: bytes) -> None:
    """G1: any bytes as the message of any call are refused or answered."""
    called(service, call, body)
    still_works(service)


@many
@given(body=mutated(MESSAGE))
def test_mutated_messages(service, body: bytes) -> None:
    """G1: a good message with a few bytes changed is refused or answered."""
    called(service, "ModelInfer", body)
    still_works(service)


int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
contents = st.fixed_dictionaries(
    {},
    optional={
        "bool_contents": st.lists(st.booleans(), max_size=3),
        "int_contents": st.lists(int32s, max_size=3),
        "int64_contents": st.lists(int64s, max_size=3),
        "uint_contents": st.lists(st.integers(0, 2**32 - 1), max_size=3),
        "fp32_contents": st.lists(st.floats(width=32), max_size=3),
        "bytes_contents": st.lists(st.binary(max_size=3), max_size=3),
    },
)
inputs = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "c", ""]),
        "datatype": st.sampled_from(["INT16", "BYTES", "FP32", "FP16", "fp32", ""]),
        "shape": st.lists(st.one_of(st.integers(0, 4), int64s), max_size=3),
    },
    optional={"contents": contents},
)


@many
@given(
    tensors=st.lists(inputs, max_size=3),
    raw=st.lists(st.one_of(st.just(b""), st.just(bytes(4)), st.binary(max_size=8)), max_size=3),
    asked=st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=3),
)
def test_odd_messages(service, tensors: list, raw: list[bytes], asked: list[str]) -> None:
    """G1, G2, G3: a message of odd tensors, raw entries and outputs is refused or answered."""
    message = messages.ModelInferRequest(
        model_name="test", inputs=tensors, raw_input_contents=raw, outputs=[{"name": name} for name in asked]
    )
    called(service, "ModelInfer", message.SerializeToString())
    still_works(service)


def tensors_of(datatype: str) -> st.SearchStrategy[tuple[list[int], list]]:
    """Shapes and flat lists of what every form can carry: text in BYTES, and no infinity, since JSON has none."""
    shapes = arrays.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4)
    if datatype == "BYTES":
        return shapes.flatmap(
            lambda shape: st.tuples(
                st.just(list(shape)),
                st.lists(
                    st.text(max_size=8).map(str.encode), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]
                ),
            )
        )
    elements = {"allow_infinity": False} if datatype.startswith("FP") else {}
    return arrays.arrays(np.dtype(NUMPY[datatype]), shapes, elements=elements).map(
        lambda array: (list(array.shape), array.ravel().tolist())
    )


@pytest.mark.parametrize("datatype", DATATYPES)
@few
@given(data=st.data())
def test_tensors_pass_unaltered(echoes, datatype: str, data: st.DataObject) -> None:
    """R8, R11-R14, B1, G2-G4: a tensor of any datatype comes out of each form as it went in, NaN as NaN."""
    shape, sent = data.draw(tensors_of(datatype))
    service = echoes(datatype, -1, -1)
    for form in FORMS:
        if (form, datatype) == ("grpc typed", "FP16"):
            continue
        answer = service.forms[form].infer([("x", datatype, shape, sent)])
        assert answer.kind == "ok", (form, answer.text)
        got_datatype, got_shape, got = answer.outputs["y"]
        assert (got_datatype, got_shape) == (datatype, shape)
        assert exact(datatype, got) == exact(datatype, sent), form


@pytest.mark.parametrize("datatype", DATATYPES)
@few
@given(data=st.data())
def test_bytes_pass_unaltered(echoes, datatype: str, data: st.DataObject) -> None:
    """B1, G2: any bits that are of the datatype pass as bytes, over REST and gRPC, infinities and odd text too."""
    if datatype == "BYTES":
        sent: Any = data.draw(st.lists(st.binary(max_size=9), max_size=5))
    elif datatype == "BOOL":
        sent = data.draw(st.lists(st.booleans(), max_size=9))
    else:
        size = np.dtype(NUMPY[datatype]).itemsize
        blob = data.draw(st.binary(max_size=40))
        blob = blob[: len(blob) // size * size]
        sent = np.frombuffer(blob, NUMPY[datatype]).tolist()
    count = len(sent)
    for form in ("rest binary", "grpc raw"):
        answer = echoes(datatype).forms[form].infer([("x", datatype, [count], sent)])
        assert answer.kind == "ok", (form, answer.text)
        assert exact(datatype, answer.outputs["y"][2]) == exact(datatype, sent)
