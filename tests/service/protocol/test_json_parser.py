"""The fast path for large JSON bodies: a body padded with spaces has the same result as without padding."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.protocol import json_parser
from app.protocol.errors import InvalidInput
from app.protocol.json_parser import MIN_BODY, read_numbers
from app.rest.request_reader import read_request
from oip_conformance.values import (
    INVALID_ELEMENTS,
    INVALID_JSON,
    INVALID_NUMBERS,
    MISMATCHED_DATA,
    VALID_ELEMENTS,
    VALID_NESTINGS,
    VALUES,
)
from oip_conformance.wires import json_element
from tests.kit import models
from tests.kit.strategies import Subject, changed_envelopes, edited

PADDING = b" " * MIN_BODY
SUBJECT = Subject(
    "test",
    [
        *((name, name, [2], values) for name, values in VALUES.items()),
        ("many", "FP64", [2, 2], [0.5, -1.0, 2.0, 1e300]),
    ],
    ["FP32"],
)


def outcome(body: bytes) -> Any:
    """Return the tensors of a body, or its error message without the position of the JSON error."""
    try:
        request = read_request(body)
    except InvalidInput as error:
        return str(error).partition("Invalid JSON")[0]
    tensors = [
        (
            tensor.name,
            tensor.datatype,
            tensor.shape,
            tensor.data.dtype,
            tensor.data.tolist().__repr__(),
            tensor.parameters,
        )
        for tensor in request.inputs
    ]
    return tensors, request.id, request.parameters, request.outputs


def check_same_outcome(body: bytes) -> None:
    assert outcome(body) == outcome(body + PADDING)


def body_of(datatype: str, shape: list[int], data: str) -> bytes:
    tensor = (
        f'{{"name": "x", "datatype": "{datatype}", "shape": {json.dumps(shape)}, "data": {data}}}'
    )
    return f'{{"id": "1", "inputs": [{tensor}], "outputs": [{{"name": "y"}}]}}'.encode()


@pytest.mark.parametrize(
    "datatype", ["FP16", "BF16", "FP32", "FP64", "INT8", "INT32", "INT64", "UINT8", "UINT64"]
)
def test_reads_numbers_as_arrays(datatype: str) -> None:
    """The fast path reads the numbers of a large body as an array."""
    pytest.importorskip("simdjson")
    value = read_numbers(body_of(datatype, [3], "[1, 2, 3]") + PADDING)
    assert isinstance(value["inputs"][0]["data"], np.ndarray)
    assert value["inputs"][0]["shape"] == [3]
    assert value["outputs"] == [{"name": "y"}]


BODIES = [
    *(body_of(datatype, [len(json.loads(data))], data) for datatype, data, _ in VALID_ELEMENTS),
    *(
        body_of(datatype, [count], data)
        for datatype, element, _ in INVALID_ELEMENTS
        for count, data in (
            (1, f"[{element}]"),
            (2, f"[1, {element}]"),
            (3, f"[{element}, 0, {element}]"),
        )
    ),
    *(body_of("FP64", [1], f"[{element}]") for element in INVALID_NUMBERS),
    *(
        body_of(datatype, shape, data)
        for datatype in ("INT32", "FP32")
        for shape, data, _ in (*VALID_NESTINGS, *MISMATCHED_DATA)
    ),
    *(body for body in INVALID_JSON if body.strip()),
]


@pytest.mark.parametrize("body", BODIES)
def test_reads_tables(body: bytes) -> None:
    """R9-R14, R20: large and small bodies give the same values, or the same error, for each value of the tables."""
    check_same_outcome(body)


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"inputs": []}',
        b'{"inputs": [], "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}',
        b'{"inputs": [{"name": "x", "datatype": "INT8", "datatype": "FP32", "shape": [1], "data": [0.5]}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1], "data": [2]}]}',
        b'{"inputs": [{"name": "a/b~1", "datatype": "FP32", "shape": [1], "data": [1]}]}',
        b'{"inputs": [{"name": "[", "datatype": "FP32", "shape": [1], "data": [1]}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": 1, "data": [[1]]}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": {"a": [1]}}]}',
        b'{"inputs": [{"name": "x", "datatype": 5, "shape": [1], "data": [1]}]}',
        b'{"inputs": [{"name": "x", "shape": [1], "data": [1]}]}',
        b'{"inputs": [5], "outputs": []}',
        b'{"inputs": {}, "outputs": []}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], "more": {"a": {"b": 1}}}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], "parameters": {"a": 1.5}}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], "id": "\\ud83c"}',
        b'{"inputs": [{"name": "data", "datatype": "FP32", "shape": [1], "data": [1]}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}, {"name": "y"}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": 1}], "more": {"data": [1]}}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "d\\u0061ta": 0}], "more": {"data": [1]}}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "more": {"data": [1]}}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], "id": "\\"data\\": [2]"}',
        b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": ["]", "\\"data\\":[1]"]}]}',
        b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": ["a", "data"]}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], "outputs": ['
        + b", ".join([b'{"name": "data"}'] * 99)
        + b"]}",
        b'{"inputs": ['
        + b", ".join(
            b'{"name": "x%d", "datatype": "FP32", "shape": [1], "data": [%d]%s}'
            % (i, i, b"0" if i == 1 else b"")
            for i in range(12)
        )
        + b"]}",
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [0], "data"\n:\t[ ]}]}',
        b'{"inputs": [], "more": ' + b'{"a": ' * 70 + b"1" + b"}" * 70 + b"}",
        b'{"inputs": [], "more": ' + b'{"a": ' * 62 + b"1" + b"}" * 62 + b"}",
    ],
)
def test_reads_unusual_requests(body: bytes) -> None:
    """R7, R20: large and small bodies give the same result for unusual requests."""
    check_same_outcome(body)


def test_reads_long_lists() -> None:
    """The fast path reads all numbers of a long list, in order."""
    pytest.importorskip("simdjson")
    values = [index / 7 for index in range(MIN_BODY)]
    value = read_numbers(body_of("FP64", [len(values)], json.dumps(values)))
    assert value["inputs"][0]["data"].tolist() == values


@pytest.mark.parametrize(
    "odd", ["", "1,", ",1", "1,,1", "1 1", '"1"', "null", "[1]", "true", "1.5", "9" * 30]
)
def test_skips_lists_that_are_not_integers(odd: str) -> None:
    """R12: the fast path leaves a list with an element that is not an integer to the standard reader."""
    for data in ("1," * MIN_BODY + odd, "1," * MIN_BODY + odd + ",1"):
        assert read_numbers(body_of("INT32", [data.count(",") + 1], f"[{data}]")) is None


@pytest.mark.parametrize("disabled", [(), ("simdjson",)], ids=["on", "off"])
def test_disable_optimizations_turns_the_fast_path_off(
    serve: Any, monkeypatch: pytest.MonkeyPatch, disabled: tuple[str, ...]
) -> None:
    """DISABLE_OPTIMIZATIONS=simdjson: a large body gets the same response without pysimdjson."""
    simdjson = pytest.importorskip("simdjson")
    parsed = []

    class Parser(simdjson.Parser):  # type: ignore[misc]
        def parse(self, text: bytes) -> Any:
            parsed.append(text)
            return super().parse(text)

    monkeypatch.setattr(json_parser, "simdjson", SimpleNamespace(Parser=Parser))
    service = serve(models.echo("FP32", [-1]), disable_optimizations=tuple(disabled))
    response = service.client.post(
        "/v2/models/test/infer", data=body_of("FP32", [2], "[1, 2.5]") + PADDING
    )
    assert response.json["outputs"][0]["data"] == [1, 2.5]
    assert parsed == ([] if disabled else [b"[1, 2.5]"])


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(generated=changed_envelopes(SUBJECT, binary=False))
def test_reads_changed_requests(generated: tuple[dict[str, Any], bytes]) -> None:
    """Large and small bodies give the same result for generated requests with changed members."""
    check_same_outcome(json.dumps(generated[0]).encode())


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_reads_changed_bodies(data: st.DataObject) -> None:
    """Large and small bodies give the same result for a valid body with a few changed bytes."""
    inputs = [
        {
            "name": name,
            "datatype": datatype,
            "shape": shape,
            "data": [json_element(value) for value in values],
        }
        for name, datatype, shape, values in SUBJECT_INPUTS
    ]
    check_same_outcome(edited(data.draw, json.dumps({"inputs": inputs}).encode()))


SUBJECT_INPUTS = [(name, name, [2], values) for name, values in VALUES.items()]
