"""Tensors: shapes, nesting, elements and their limits (R9-R14), in every form that can carry them."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest

from oip_conformance.client import Http, Reply
from oip_conformance.inputs import SMALL
from oip_conformance.large_requests import large_request
from oip_conformance.model import DATATYPES, INPUT_OF_RANK
from oip_conformance.outcomes import error_message, expect, success
from oip_conformance.skips import require_feature
from oip_conformance.target import Target
from oip_conformance.values import (
    ELEMENTS,
    INVALID_ELEMENTS,
    MISFITS,
    NESTINGS,
    NO_NUMBERS,
    ODD_SHAPES,
    RANGES,
)
from oip_conformance.wires import RAW_ONLY, Grpc, Rest, exact, pack

NO_DIMENSIONS: list[Any] = [True, "1", 1.0, -1, 1.5, None, [1], {}]
FLOATS = ["FP16", "BF16", "FP32", "FP64"]


def send(rest: Rest, name: str, datatype: str, shape: Any, data: str) -> Reply:
    """Send an input with this JSON text as `data`, request its output, and return the reply."""
    tensor = f'{{"name": "{name}_in", "datatype": "{datatype}", "shape": {json.dumps(shape)}, "data": {data}}}'
    body = f'{{"inputs": [{tensor}], "outputs": [{{"name": "{name}_out"}}]}}'
    return rest.client.post(f"/v2/models/{rest.model}/infer", body)


def data_of(reply: Reply) -> list:
    (output,) = success(reply).json["outputs"]
    return output["data"]


@pytest.mark.parametrize(
    "shape",
    [
        *([dimension] for dimension in NO_DIMENSIONS),
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
    error_message(send(rest, "int32", "INT32", shape, "[1]"), 400)


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        *(case[:2] for case in ODD_SHAPES),
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
    """R9: a shape that is negative, overflows 64 bits or does not match the data is rejected, even for small bodies."""
    expect(
        target.infer(form, [("grid_in", "INT32", shape, [int(value) for value in values])]),
        "INVALID_ARGUMENT",
    )
    expect(target.infer(form, [SMALL]))


@pytest.mark.parametrize("datatype", DATATYPES)
def test_empty_tensor(target: Target, form: str, datatype: str) -> None:
    """R9, G5: a tensor without elements is valid."""
    form = target.form_for(form, datatype)
    response = expect(target.infer(form, [(f"{datatype.lower()}_in", datatype, [0], [])]))
    assert response.outputs == {f"{datatype.lower()}_out": (datatype, [0], [])}


@pytest.mark.parametrize("shape", [[0, 0], [0, 3], [3, 0]])
def test_empty_tensor_keeps_shape(target: Target, form: str, shape: list[int]) -> None:
    """R9, G5: a tensor without elements keeps its shape."""
    response = expect(target.infer(form, [("grid_in", "INT32", shape, [])]))
    assert response.outputs == {"grid_out": ("INT32", shape, [])}


@pytest.mark.parametrize(("shape", "data", "count"), NESTINGS)
def test_nesting(rest: Rest, shape: list[int], data: str, count: int) -> None:
    """R10: data may be flat, nested to any depth or a scalar. It is read in row-major order and returned flat."""
    assert (
        data_of(send(rest, INPUT_OF_RANK[len(shape)], "INT32", shape, data)) == [1, 2, 3, 4][:count]
    )


@pytest.mark.parametrize(("shape", "data"), [case[:2] for case in MISFITS])
def test_invalid_nesting(rest: Rest, shape: list[int], data: str) -> None:
    """R10: ragged nesting, or nesting that does not match the shape, is rejected."""
    error_message(send(rest, INPUT_OF_RANK[len(shape)], "INT32", shape, data), 400)


@pytest.mark.parametrize(("datatype", "data", "expected"), ELEMENTS)
def test_elements(target: Target, rest: Rest, datatype: str, data: str, expected: str) -> None:
    """R11: an element is returned unchanged, except for rounding."""
    if datatype in RAW_ONLY:
        require_feature(target, f"{datatype.lower()} json")
    got = data_of(send(rest, datatype.lower(), datatype, [len(json.loads(data))], data))
    assert exact(datatype, got) == exact(datatype, json.loads(expected))
    if datatype not in FLOATS:
        assert list(map(type, got)) == list(map(type, json.loads(expected)))


@pytest.mark.parametrize(("datatype", "element"), [case[:2] for case in INVALID_ELEMENTS])
def test_elements_of_another_datatype(rest: Rest, datatype: str, element: str) -> None:
    """R11: an element that the datatype cannot represent exactly is rejected, also after a valid one."""
    good = '"a"' if datatype == "BYTES" else "0"
    error_message(send(rest, datatype.lower(), datatype, [1], f"[{element}]"), 400)
    error_message(send(rest, datatype.lower(), datatype, [2], f"[{good}, {element}]"), 400)


@pytest.mark.needs("binary")
@pytest.mark.parametrize(
    ("datatype", "element"),
    [("FP16", "65520"), ("BF16", "-3.4e38"), ("FP32", "1e39"), ("FP32", "-3.5e38")],
)
def test_float_overflow(rest: Rest, datatype: str, element: str) -> None:
    """R11: a number beyond a float's range is rejected, not converted to infinity."""
    name = datatype.lower()
    tensor = {
        "name": f"{name}_in",
        "datatype": datatype,
        "shape": [1],
        "data": [json.loads(element)],
    }
    error_message(rest.post({"inputs": [tensor], "parameters": {"binary_data_output": True}}), 400)


@pytest.mark.parametrize("datatype", RANGES)
def test_integer_limits(target: Target, form: str, datatype: str) -> None:
    """R11: the lowest and the highest integer of a datatype are accepted."""
    low, high = RANGES[datatype]
    response = expect(
        target.infer(form, [(f"{datatype.lower()}_in", datatype, [3], [low, 1, high])])
    )
    assert response.outputs == {f"{datatype.lower()}_out": (datatype, [3], [low, 1, high])}


@pytest.mark.parametrize("datatype", RANGES)
@pytest.mark.parametrize("beyond", ["below", "above"])
def test_integer_overflow(rest: Rest, datatype: str, beyond: str) -> None:
    """R11: an integer beyond its datatype's range is rejected, not wrapped."""
    low, high = RANGES[datatype]
    stray = low - 1 if beyond == "below" else high + 1
    error_message(send(rest, datatype.lower(), datatype, [2], f"[1, {stray}]"), 400)


@pytest.mark.parametrize(
    ("datatype", "field", "stray"),
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
    target: Target, rpc: Grpc, datatype: str, field: str, stray: int
) -> None:
    """R11, G3: an integer beyond its datatype's range is rejected in a wider contents field."""
    expect(
        target.infer("grpc typed", [(f"{datatype.lower()}_in", datatype, [2], [1, stray])]),
        "INVALID_ARGUMENT",
    )


@pytest.mark.parametrize("datatype", FLOATS)
def test_nan(target: Target, form: str, datatype: str) -> None:
    """R12: NaN is accepted in every form, as null in JSON."""
    form = target.form_for(form, datatype)
    response = expect(
        target.infer(form, [(f"{datatype.lower()}_in", datatype, [2], [math.nan, 1.5])])
    )
    (output,) = response.outputs.values()
    assert exact(datatype, output[2]) == exact(datatype, [math.nan, 1.5])


@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name not in (*FLOATS, "BYTES")])
def test_null_is_not_an_integer(rest: Rest, datatype: str) -> None:
    """R12: null is rejected for integers and booleans."""
    error_message(send(rest, datatype.lower(), datatype, [2], "[1, null]"), 400)


@pytest.mark.parametrize("element", NO_NUMBERS)
def test_invalid_json_numbers(rest: Rest, element: str) -> None:
    """R12: NaN, Infinity, other invalid JSON numbers and numbers beyond the range of FP64 are rejected."""
    error_message(send(rest, "fp64", "FP64", [1], f"[{element}]"), 400)


@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize("form", ["rest binary", "grpc typed", "grpc raw"], indirect=True)
def test_infinity_in_bytes(target: Target, form: str, datatype: str) -> None:
    """R12: ±Infinity is accepted in every form except JSON."""
    form = target.form_for(form, datatype)
    response = expect(
        target.infer(form, [(f"{datatype.lower()}_in", datatype, [2], [math.inf, -math.inf])])
    )
    assert response.outputs == {f"{datatype.lower()}_out": (datatype, [2], [math.inf, -math.inf])}


def as_json(rest: Rest, datatype: str, blob: bytes) -> Reply:
    """Send one binary element and return the reply in JSON."""
    name = datatype.lower()
    tensor = {
        "name": f"{name}_in",
        "datatype": datatype,
        "shape": [1],
        "parameters": {"binary_data_size": len(blob)},
    }
    return rest.post({"inputs": [tensor], "outputs": [{"name": f"{name}_out"}]}, blob)


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
    """R12: a JSON output that contains ±Infinity is rejected with an error that suggests binary output."""
    assert "binary" in error_message(as_json(rest, datatype, bytes.fromhex(blob)), 400)


def test_fp32_has_shortest_form(rest: Rest) -> None:
    """R13: FP32 is written in its shortest form, not widened to FP64."""
    reply = send(rest, "fp32", "FP32", [3], "[25.12, 0.1, 3.4028235e38]")
    assert data_of(reply) == [25.12, 0.1, 3.4028235e38]
    assert b"25.12" in reply.data
    assert b"25.1200" not in reply.data


def test_fp16_as_json(rest: Rest) -> None:
    """R13: FP16 is accepted and returned as JSON numbers, too."""
    assert data_of(send(rest, "fp16", "FP16", [3], "[1.5, -65504, 0]")) == [1.5, -65504, 0]


@pytest.mark.parametrize("text", ["", "naïve 🌷", "\0", '"\\/', "\u2028", "{[", "a" * 70_000])
def test_text(target: Target, form: str, text: str) -> None:
    """R14: BYTES are UTF-8 strings in JSON, and the same bytes in every other form."""
    response = expect(target.infer(form, [("bytes_in", "BYTES", [2], [text.encode(), b"x"])]))
    assert response.outputs == {"bytes_out": ("BYTES", [2], [text.encode(), b"x"])}


@pytest.mark.parametrize("form", ["rest binary", "grpc typed", "grpc raw"], indirect=True)
def test_bytes_that_are_not_text(target: Target, form: str) -> None:
    """R14: bytes of any value are accepted in every form except JSON."""
    values = [b"\xff\x00\xfe", b"", bytes(range(256))]
    response = expect(target.infer(form, [("bytes_in", "BYTES", [3], values)]))
    assert response.outputs == {"bytes_out": ("BYTES", [3], values)}


@pytest.mark.needs("binary")
@pytest.mark.parametrize("value", ["ff", "c3", "eda080", "6180"])
def test_bytes_as_json(rest: Rest, value: str) -> None:
    """R14: a JSON output with bytes that are not UTF-8 is rejected with an error that suggests binary output."""
    octets = bytes.fromhex(value)
    assert "binary" in error_message(
        as_json(rest, "BYTES", struct.pack("<I", len(octets)) + octets), 400
    )


@pytest.mark.parametrize("data", ['["\\ud83c"]', '["\\udf37\\ud83c"]', '"\\ud800"'])
def test_unpaired_surrogate(rest: Rest, data: str) -> None:
    """R14: text with an unpaired surrogate is rejected."""
    error_message(send(rest, "bytes", "BYTES", [1], data), 400)


def test_forms_agree(target: Target, form: str) -> None:
    """R8, R11: up to 100,000 elements are returned unchanged."""
    values = [index / 8 for index in range(100_000)]
    if target.limit and target.limit < 10 * len(values):
        values = values[: target.limit // 16]
    response = expect(target.infer(form, [("fp64_in", "FP64", [len(values)], values)]))
    assert pack("FP64", response.outputs["fp64_out"][2]) == pack("FP64", values)


@pytest.mark.parametrize("extra", [0, 1])
def test_request_of_maximum_size(
    limit: int, target: Target, http: Http, infer_path: str, form: str, extra: int
) -> None:
    """G6: in each form, exactly the limit is accepted, one byte more is rejected, and the next request works."""
    for size in (limit + extra, 1024):
        body, headers = large_request(form, size, target.model)
        is_valid = size <= limit
        if form.startswith("grpc"):
            expect(target.forms[form].send(body), "ok" if is_valid else "RESOURCE_EXHAUSTED")
        elif is_valid:
            success(http.post(infer_path, body, headers))
        else:
            assert str(limit) in error_message(http.post(infer_path, body, headers), 413)
