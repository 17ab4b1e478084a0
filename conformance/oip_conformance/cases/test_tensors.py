"""Tensors: shapes, nesting, elements and their limits (R9-R14), in every form that has them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from oip_conformance.binary_requests import binary_input
from oip_conformance.client import Http, Reply
from oip_conformance.http_requests import request_with_data
from oip_conformance.inputs import SMALL_INPUT, json_input, outputs_of, vector
from oip_conformance.large_requests import large_request
from oip_conformance.model import DATATYPES, INPUT_OF_RANK, input_of, output_of
from oip_conformance.outcomes import (
    check_error,
    check_success,
    error_message,
    expect_error,
    expect_success,
)
from oip_conformance.skips import require_json
from oip_conformance.target import Target
from oip_conformance.values import (
    INVALID_ELEMENTS,
    INVALID_NUMBERS,
    INVALID_SHAPES,
    MISMATCHED_DATA,
    RANGES,
    VALID_ELEMENTS,
    VALID_NESTINGS,
)
from oip_conformance.wires import Grpc, InputTuple, Rest, canonical_bytes, pack

FLOATS = ["FP16", "BF16", "FP32", "FP64"]
INTEGERS = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]


def send_json_text(
    rest: Rest, datatype: str, shape: Any, data: str, name: str | None = None
) -> Reply:
    """Send an input with this JSON text as `data`, request its output, and return the reply.

    By default, it is the input of one dimension with this datatype.
    """
    if name is None:
        name = datatype.lower()
    body = request_with_data(name, datatype, shape, data)
    return rest.client.post(f"/v2/models/{rest.model}/infer", body)


def data_of(reply: Reply) -> list:
    """Return the data of the only output of a successful response."""
    check_success(reply)
    (output,) = reply.json["outputs"]
    return output["data"]


@pytest.mark.parametrize(
    "shape",
    [
        [True],
        ["1"],
        [1.0],
        [-1],
        [1.5],
        [None],
        [[1]],
        [{}],
        1,
        "1",
        "[1]",
        {},
        True,
        [2**63],
        [2**64],
        [10**30],
        [-(2**63)],
    ],
)
def test_invalid_dimensions(rest: Rest, shape: Any) -> None:
    """R9: a shape other than a list of integers of at least 0 is rejected."""
    reply = send_json_text(rest, "INT32", shape, "[1]")
    check_error(reply, 400)


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        *[(shape, values) for shape, values, _ in INVALID_SHAPES],
        ([3, 6148914691236517206], [1, 2]),
        ([2**63 - 1, 2**63 - 1], [1]),
        ([-1, -2], [1, 2]),
        ([-2, -2], [1, 2, 3, 4]),
        ([2**31, 2**31], []),
        ([2**16, 2**16], []),
        ([1] * 1000, [1]),
    ],
)
def test_invalid_shapes(target: Target, form: str, shape: list[int], values: list) -> None:
    """R9: a shape that is negative, overflows 64 bits or does not match the data is rejected, even
    for small bodies.
    """
    integers = [int(value) for value in values]
    response = target.infer(form, [("grid_in", "INT32", shape, integers)])
    expect_error(response, "INVALID_ARGUMENT")
    target.infer_successfully(form, [SMALL_INPUT])


@pytest.mark.parametrize("datatype", DATATYPES)
def test_empty_tensor(target: Target, form: str, datatype: str) -> None:
    """R9, G5: a tensor without elements is valid."""
    tensor = vector(datatype, [])
    form = target.form_for(form, datatype)
    response = target.infer_successfully(form, [tensor])
    assert response.outputs == outputs_of(tensor)


@pytest.mark.parametrize("shape", [[0, 0], [0, 3], [3, 0]])
def test_empty_tensor_keeps_shape(target: Target, form: str, shape: list[int]) -> None:
    """R9, G5: a tensor without elements keeps its shape."""
    tensor: InputTuple = ("grid_in", "INT32", shape, [])
    response = target.infer_successfully(form, [tensor])
    assert response.outputs == outputs_of(tensor)


@pytest.mark.parametrize(("shape", "data", "count"), VALID_NESTINGS)
def test_nesting(rest: Rest, shape: list[int], data: str, count: int) -> None:
    """R10: data may be flat, nested to any depth or a scalar.

    It is read in row-major order and returned flat.
    """
    name = INPUT_OF_RANK[len(shape)]
    reply = send_json_text(rest, "INT32", shape, data, name)
    assert data_of(reply) == [1, 2, 3, 4][:count]


@pytest.mark.parametrize(("shape", "data"), [(shape, data) for shape, data, _ in MISMATCHED_DATA])
def test_invalid_nesting(rest: Rest, shape: list[int], data: str) -> None:
    """R10: ragged nesting, or nesting that does not match the shape, is rejected."""
    name = INPUT_OF_RANK[len(shape)]
    reply = send_json_text(rest, "INT32", shape, data, name)
    check_error(reply, 400)


@pytest.mark.parametrize(("datatype", "data", "expected"), VALID_ELEMENTS)
def test_elements(target: Target, rest: Rest, datatype: str, data: str, expected: str) -> None:
    """R11: an element is returned unchanged, except for rounding."""
    require_json(target, datatype)
    count = len(json.loads(data))
    reply = send_json_text(rest, datatype, [count], data)
    elements = data_of(reply)
    expected_elements = json.loads(expected)
    assert canonical_bytes(datatype, elements) == canonical_bytes(datatype, expected_elements)
    if datatype not in FLOATS:
        assert types_of(elements) == types_of(expected_elements)


def types_of(elements: list) -> list[type]:
    return [type(element) for element in elements]


@pytest.mark.parametrize(
    ("datatype", "element"), [(datatype, element) for datatype, element, _ in INVALID_ELEMENTS]
)
def test_elements_of_another_datatype(rest: Rest, datatype: str, element: str) -> None:
    """R11: an element that the datatype cannot represent exactly is rejected, also after a valid
    one.
    """
    reply = send_json_text(rest, datatype, [1], f"[{element}]")
    check_error(reply, 400)

    valid_element = '"a"' if datatype == "BYTES" else "0"
    reply = send_json_text(rest, datatype, [2], f"[{valid_element}, {element}]")
    check_error(reply, 400)


@pytest.mark.needs("binary")
@pytest.mark.parametrize(
    ("datatype", "element"),
    [("FP16", "65520"), ("BF16", "-3.4e38"), ("FP32", "1e39"), ("FP32", "-3.5e38")],
)
def test_float_overflow(rest: Rest, datatype: str, element: str) -> None:
    """R11: a number beyond a float's range is rejected, not converted to infinity."""
    number = json.loads(element)
    tensor = json_input(input_of(datatype), datatype, [1], [number])
    parameters = {"binary_data_output": True}
    reply = rest.post({"inputs": [tensor], "parameters": parameters})
    check_error(reply, 400)


@pytest.mark.parametrize("datatype", RANGES)
def test_integer_limits(target: Target, form: str, datatype: str) -> None:
    """R11: the lowest and the highest integer of a datatype are accepted."""
    low, high = RANGES[datatype]
    tensor = vector(datatype, [low, 1, high])
    response = target.infer_successfully(form, [tensor])
    assert response.outputs == outputs_of(tensor)


@pytest.mark.parametrize("datatype", RANGES)
@pytest.mark.parametrize("beyond", ["below", "above"])
def test_integer_overflow(rest: Rest, datatype: str, beyond: str) -> None:
    """R11: an integer beyond its datatype's range is rejected, not wrapped."""
    low, high = RANGES[datatype]
    value = low - 1 if beyond == "below" else high + 1
    reply = send_json_text(rest, datatype, [2], f"[1, {value}]")
    check_error(reply, 400)


@pytest.mark.parametrize(
    ("datatype", "field", "value"),
    [
        ("UINT8", "uint_contents", 256),
        ("UINT8", "uint_contents", 2**32 - 1),
        ("UINT16", "uint_contents", 65536),
        ("INT8", "int_contents", 128),
        ("INT8", "int_contents", 300),
        ("INT8", "int_contents", -129),
        ("INT16", "int_contents", 32768),
        ("INT16", "int_contents", -(2**31)),
    ],
)
def test_integer_overflow_in_contents(
    target: Target, rpc: Grpc, datatype: str, field: str, value: int
) -> None:
    """R11, G3: an integer beyond its datatype's range is rejected in a wider contents field."""
    tensor = vector(datatype, [1, value])
    response = target.infer("grpc typed", [tensor])
    expect_error(response, "INVALID_ARGUMENT")


@pytest.mark.parametrize("datatype", FLOATS)
def test_nan(target: Target, form: str, datatype: str) -> None:
    """R12: NaN is accepted in every form, as null in JSON."""
    values = [math.nan, 1.5]
    form = target.form_for(form, datatype)
    response = target.infer_successfully(form, [vector(datatype, values)])
    (output,) = response.outputs.values()
    assert canonical_bytes(datatype, output.values) == canonical_bytes(datatype, values)


@pytest.mark.parametrize("datatype", ["BOOL", *INTEGERS])
def test_null_is_not_an_integer(rest: Rest, datatype: str) -> None:
    """R12: null is rejected for integers and booleans."""
    reply = send_json_text(rest, datatype, [2], "[1, null]")
    check_error(reply, 400)


@pytest.mark.parametrize("element", INVALID_NUMBERS)
def test_invalid_json_numbers(rest: Rest, element: str) -> None:
    """R12: NaN, Infinity, other invalid JSON numbers and numbers beyond the range of FP64 are
    rejected.
    """
    reply = send_json_text(rest, "FP64", [1], f"[{element}]")
    check_error(reply, 400)


@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize("form", ["rest binary", "grpc typed", "grpc raw"], indirect=True)
def test_infinity_in_bytes(target: Target, form: str, datatype: str) -> None:
    """R12: ±Infinity is accepted in every form except JSON."""
    tensor = vector(datatype, [math.inf, -math.inf])
    form = target.form_for(form, datatype)
    response = target.infer_successfully(form, [tensor])
    assert response.outputs == outputs_of(tensor)


def request_json_output(rest: Rest, datatype: str, blob: bytes) -> Reply:
    """Send one binary element, request JSON, and return the reply."""
    name = input_of(datatype)
    tensor = binary_input(name, datatype, [1], size=len(blob))
    output = {"name": output_of(name)}
    return rest.post({"inputs": [tensor], "outputs": [output]}, blob)


@pytest.mark.needs("binary")
@pytest.mark.parametrize(
    ("datatype", "blob"),
    [
        ("FP16", "007c"),
        ("FP16", "00fc"),
        ("BF16", "807f"),
        ("BF16", "80ff"),
        ("FP32", "0000807f"),
        ("FP64", "000000000000f0ff"),
    ],
)
def test_infinity_as_json(rest: Rest, datatype: str, blob: str) -> None:
    """R12: a JSON output that contains ±Infinity is rejected with an error that suggests binary
    output.
    """
    reply = request_json_output(rest, datatype, bytes.fromhex(blob))
    message = error_message(reply, 400)
    assert "binary" in message


def test_fp32_has_shortest_form(rest: Rest) -> None:
    """R13: FP32 is written in its shortest form, not widened to FP64."""
    reply = send_json_text(rest, "FP32", [3], "[25.12, 0.1, 3.4028235e38]")
    assert data_of(reply) == [25.12, 0.1, 3.4028235e38]
    assert b"25.12" in reply.data
    assert b"25.1200" not in reply.data


def test_fp16_as_json(rest: Rest) -> None:
    """R13: FP16 is accepted and returned as JSON numbers, too."""
    reply = send_json_text(rest, "FP16", [3], "[1.5, -65504, 0]")
    assert data_of(reply) == [1.5, -65504, 0]


@pytest.mark.parametrize("text", ["", "naïve 🌷", "\0", '"\\/', "\u2028", "{[", "a" * 70_000])
def test_text(target: Target, form: str, text: str) -> None:
    """R14: BYTES are UTF-8 strings in JSON, and the same bytes in every other form."""
    tensor = vector("BYTES", [text.encode(), b"x"])
    response = target.infer_successfully(form, [tensor])
    assert response.outputs == outputs_of(tensor)


@pytest.mark.parametrize("form", ["rest binary", "grpc typed", "grpc raw"], indirect=True)
def test_bytes_that_are_not_text(target: Target, form: str) -> None:
    """R14: bytes of any value are accepted in every form except JSON."""
    tensor = vector("BYTES", [b"\xff\x00\xfe", b"", bytes(range(256))])
    response = target.infer_successfully(form, [tensor])
    assert response.outputs == outputs_of(tensor)


@pytest.mark.needs("binary")
@pytest.mark.parametrize("value", ["ff", "c3", "eda080", "6180"])
def test_bytes_as_json(rest: Rest, value: str) -> None:
    """R14: a JSON output with bytes that are not UTF-8 is rejected with an error that suggests
    binary output.
    """
    blob = pack("BYTES", [bytes.fromhex(value)])
    reply = request_json_output(rest, "BYTES", blob)
    message = error_message(reply, 400)
    assert "binary" in message


@pytest.mark.parametrize("data", ['["\\ud83c"]', '["\\udf37\\ud83c"]', '"\\ud800"'])
def test_unpaired_surrogate(rest: Rest, data: str) -> None:
    """R14: text with an unpaired surrogate is rejected."""
    reply = send_json_text(rest, "BYTES", [1], data)
    check_error(reply, 400)


def test_forms_agree(target: Target, form: str) -> None:
    """R8, R11: up to 100,000 elements are returned unchanged."""
    count = 100_000
    bytes_per_element = 16  # more than an element has in any form
    if target.limit and target.limit < 10 * count:
        count = target.limit // bytes_per_element
    values = [index / 8 for index in range(count)]
    response = target.infer_successfully(form, [vector("FP64", values)])
    output = response.outputs["fp64_out"]
    assert pack("FP64", output.values) == pack("FP64", values)


@pytest.mark.parametrize("extra", [0, 1])
def test_request_of_maximum_size(
    limit: int, target: Target, http: Http, infer_path: str, form: str, extra: int
) -> None:
    """G6: in each form, exactly the limit is accepted, one byte more is rejected, and the next
    request works.
    """
    for size in (limit + extra, 1024):
        body, headers = large_request(form, size, target.model)
        is_valid = size <= limit
        if form.startswith("grpc"):
            response = target.forms[form].send(body)
            if is_valid:
                expect_success(response)
            else:
                expect_error(response, "RESOURCE_EXHAUSTED")
            continue

        reply = http.post(infer_path, body, headers)
        if is_valid:
            check_success(reply)
        else:
            message = error_message(reply, 413)
            assert str(limit) in message
