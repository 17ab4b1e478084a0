"""JSON: nesting, elements, and bodies that are not valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.protocol.types import MetadataTensor
from oip_conformance.values import (
    ELEMENTS,
    INSTEAD,
    INVALID_ELEMENTS,
    MISFITS,
    NESTINGS,
    NO_JSON,
    NO_NUMBERS,
)
from oip_conformance.wires import error_message
from tests.kit import models
from tests.service.rest.requests import BODY, GOOD, INFER


@pytest.fixture(autouse=True)
def check_valid_request_afterward(client):
    """R20: check after each test that a valid request succeeds."""
    yield
    assert client.post(INFER, json=GOOD).json["outputs"][0]["data"] == [3.5]


def send(echoes, datatype: str, shape: list[int], data: str) -> Any:
    """Return the response to a request with one input, whose `data` is this JSON text."""
    body = f'{{"inputs": [{{"name": "x", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}]}}'
    return echoes(datatype, *[-1] * len(shape)).client.post(INFER, data=body)


@pytest.mark.parametrize(
    ("shape", "data", "count"),
    NESTINGS,
)
def test_nesting(echoes, shape: list[int], data: str, count: int) -> None:
    """R10: data may be flat, nested or a scalar, is read in row-major order, and is returned flat."""
    response = send(echoes, "INT32", shape, data)
    assert response.status_code == 200, response.json
    expected = {"name": "y", "datatype": "INT32", "shape": shape, "data": [1, 2, 3, 4][:count]}
    assert response.json["outputs"] == [expected]


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    MISFITS,
)
def test_rejects_nesting_that_does_not_fit(echoes, shape: list[int], data: str, text: str) -> None:
    """R9, R10: nested data must be rectangular and have as many elements as the shape."""
    message = error_message(send(echoes, "INT32", shape, data), 400)
    assert message.startswith('Input "x": ')
    assert text in message


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    ELEMENTS,
)
def test_elements_as_json(echoes, datatype: str, data: str, expected: str) -> None:
    """R11-R14: elements are returned as sent or rounded, FP32 in its shortest form, and NaN as null."""
    parsed = json.loads(data)
    response = send(echoes, datatype, [len(parsed)], data)
    assert response.status_code == 200, response.json
    got = response.json["outputs"][0]["data"]
    assert [repr(each) for each in got] == [repr(each) for each in json.loads(expected)]


@pytest.mark.parametrize(
    ("datatype", "element", "text"),
    INVALID_ELEMENTS,
)
def test_rejects_elements_out_of_range_or_of_another_type(
    echoes, datatype: str, element: str, text: str
) -> None:
    """R11, R12: an element that the datatype cannot hold is rejected, and the error names its position."""
    good = '"a"' if datatype == "BYTES" else "0"
    for data, place in (
        (f"[{element}, {element}]", 0),
        (f"[{good}, {element}]", 1),
        (f"[[{element}], [{good}]]", 0),
    ):
        message = error_message(send(echoes, datatype, [2], data), 400)
        assert message.startswith('Input "x": ')
        assert text in message
        assert f"data[{place}]. " in message or " for " not in text


@pytest.mark.parametrize("element", NO_NUMBERS)
def test_rejects_numbers_that_are_not_json(echoes, element: str) -> None:
    """R12: NaN, Infinity, other numbers outside of JSON, and numbers that overflow are rejected."""
    error_message(send(echoes, "FP64", [1], f"[{element}]"), 400)


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_infinite_output(serve, datatype: str) -> None:
    """R12: an output with ±Infinity is rejected in JSON, returned in binary, and null if JSON_NONFINITE is `null`."""
    module = models.model(
        [], [MetadataTensor("y", datatype, [-1])], lambda _: [float("inf"), 1, float("-inf")]
    )
    client = serve(module)
    text = error_message(client.rest.post({"inputs": []}), 400)
    assert text.startswith('Output "y": ')
    assert "equest binary output" in text
    assert client.forms["rest binary"].infer([]).outputs["y"][2] == [float("inf"), 1, float("-inf")]
    response = serve(module, json_nonfinite="null").rest.post({"inputs": []})
    assert response.json["outputs"][0]["data"] == [None, 1, None]


def test_output_that_is_not_utf8(serve) -> None:
    """R14: an output that is not UTF-8 is rejected in JSON, and returned in binary."""
    service = serve(
        models.model([], [MetadataTensor("y", "BYTES", [-1])], lambda _: [b"fine", b"\xff"])
    )
    text = error_message(service.rest.post({"inputs": []}), 400)
    assert text.startswith('Output "y": ')
    assert "equest binary output" in text
    assert service.forms["rest binary"].infer([]).outputs["y"][2] == [b"fine", b"\xff"]


def test_rejects_lone_surrogate(echoes) -> None:
    """R14: a string with half of a surrogate pair is rejected."""
    error_message(send(echoes, "BYTES", [1], '["\\ud83c"]'), 400)
    error_message(send(echoes, "BYTES", [1], '"\\udf37"'), 400)


@pytest.mark.parametrize("body", NO_JSON)
def test_rejects_body_that_is_not_json(client, body: bytes) -> None:
    """R20: an empty body, or one that is not JSON, is rejected."""
    text = error_message(client.post(INFER, data=body), 400)
    assert text.startswith("Invalid JSON: " if body else "Empty body. ")


def test_rejects_nan_with_advice(client) -> None:
    """R20: NaN, as written by Python's json module, is rejected, and the error recommends null."""
    body = json.dumps(
        {"inputs": [{"name": "ü", "shape": [1], "datatype": "FP32", "data": [float("nan")]}]}
    )
    assert error_message(client.post(INFER, data=body), 400).endswith(". Use null for NaN.")


def test_rejects_body_that_is_not_utf8(client) -> None:
    """R20: the error for a body in another character encoding names UTF-8."""
    body = json.dumps({"id": "é", "inputs": []}, ensure_ascii=False).encode("latin-1")
    assert error_message(client.post(INFER, data=body), 400).startswith(
        "Invalid JSON: not UTF-8. Send a file as base64 text, or with Inference-Header"
    )


@pytest.mark.parametrize("length", [1, 5, len(BODY) // 2, len(BODY) - 1])
def test_rejects_truncated_json(client, length: int) -> None:
    """R20: truncated JSON is rejected."""
    assert "Invalid JSON" in error_message(client.post(INFER, data=BODY[:length]), 400)


def test_rejects_body_shorter_than_content_length(client) -> None:
    """R19, R20: a body that is shorter than its Content-Length returns 400."""
    error_message(
        client.post(INFER, data=BODY, environ_overrides={"CONTENT_LENGTH": str(len(BODY) + 1)}), 400
    )


@pytest.mark.parametrize("body", INSTEAD)
def test_rejects_json_that_is_not_an_object(client, body: str) -> None:
    """R20: JSON that is not an object is rejected."""
    assert "Expected an object" in error_message(client.post(INFER, data=body), 400)


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    """Return the valid request with an extra member that is nested `levels` deep."""
    return b'{"extra": %s, %s' % ((opening * levels + "1" + closing * levels).encode(), BODY[1:])


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}"), ('[{"]": ', "}]")])
def test_depth_limit(client, opening: str, closing: str) -> None:
    """R20: JSON may be nested 64 levels deep, counted from the root of the body."""
    each = opening.count("[") + opening.count("{")
    assert client.post(INFER, data=nested(63 // each, opening, closing)).status_code == 200
    assert "at most 64 levels" in error_message(
        client.post(INFER, data=nested(64 // each, opening, closing)), 400
    )


@pytest.mark.parametrize("levels", [900, 1100, 49_000])
def test_rejects_very_deep_json(client, levels: int) -> None:
    """R20: JSON that is nested hundreds or thousands of levels deep returns 400 too."""
    error_message(client.post(INFER, data=nested(levels)), 400)
    error_message(client.post(INFER, data=b"[" * levels), 400)


@pytest.mark.parametrize(("levels", "status"), [(62, 200), (63, 400)])
def test_depth_limit_after_large_flat_data(serve, levels: int, status: int) -> None:
    """R20: the depth limit also applies after a large flat array."""
    extra = b"[%s, %s]" % (b",".join([b"[]"] * 600_000), b"[" * levels + b"]" * levels)
    client = serve(models.two_by_two()).client
    assert client.post(INFER, data=b'{"extra": %s, %s' % (extra, BODY[1:])).status_code == status


@pytest.mark.parametrize(
    "text", ["[" * 500, '"' + "[{" * 50, "\\" + "[" * 100, '\\"' + "]" * 100, "{[" * 100 + "\\"]
)
def test_brackets_in_strings_are_not_nesting(client, text: str) -> None:
    """R20: brackets in strings do not count as nesting."""
    body = {"extra": text, text: [[text]], **GOOD}
    assert client.post(INFER, data=json.dumps(body)).status_code == 200


def test_depth_limit_of_data(echoes) -> None:
    """R10, R20: data may be nested up to the depth limit of the body, whatever its shape."""
    assert send(echoes, "INT32", [1], "[" * 61 + "1" + "]" * 61).status_code == 200
    assert "at most 64 levels" in error_message(
        send(echoes, "INT32", [1], "[" * 62 + "1" + "]" * 62), 400
    )
