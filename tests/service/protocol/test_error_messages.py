"""Error messages for each value of the tables. The conformance suite sends the values, but servers differ in their texts."""

from __future__ import annotations

from typing import Any

import pytest

from oip_conformance.values import (
    INVALID_BYTES_DATA,
    INVALID_ELEMENTS,
    INVALID_SHAPES,
    MISMATCHED_DATA,
)
from oip_conformance.wires import FORMS, error_message


def message(echoes, datatype: str, shape: list[int], data: str) -> str:
    """Return the error message for an input whose `data` is this JSON text. It names the input."""
    tensor = f'{{"name": "x", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}'
    client = echoes(datatype, *[-1] * len(shape)).client
    response = client.post("/v2/models/test/infer", data=f'{{"inputs": [{tensor}]}}')
    text = error_message(response, 400)
    assert text.startswith('Input "x": ')
    return text


@pytest.mark.parametrize(("datatype", "element", "text"), INVALID_ELEMENTS)
def test_elements(echoes, datatype: str, element: str, text: str) -> None:
    """R11, R12, R19: the message has the range or the kind that the datatype expects, the element and its position."""
    good = '"a"' if datatype == "BYTES" else "0"
    lists = (f"[{element}, {element}]", f"[{good}, {element}]", f"[[{element}], [{good}]]")
    for data, position in zip(lists, (0, 1, 0), strict=True):
        error = message(echoes, datatype, [2], data)
        assert text in error
        assert f"data[{position}]. " in error or " for " not in text


@pytest.mark.parametrize(("shape", "data", "text"), MISMATCHED_DATA)
def test_nesting(echoes, shape: list[int], data: str, text: str) -> None:
    """R9, R10, R19: the message has the number of elements in the data and in the shape."""
    assert text in message(echoes, "INT32", shape, data)


@pytest.mark.parametrize(("shape", "values", "text"), INVALID_SHAPES)
def test_shapes(echoes, form: str, shape: list[int], values: list, text: str) -> None:
    """R9, R19: the message has the dimension that is invalid, in every form."""
    response = echoes("FP64", -1, -1).forms[form].infer([("x", "FP64", shape, values)])
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text.startswith(f'Input "x": {text}')


@pytest.mark.parametrize(
    ("datatype", "shape", "values", "text"),
    [
        ("INT8", [2], [1, 300], "Expected INT8 from -128 to 127, got 300."),
        ("UINT16", [2], [70000, 1], "Expected UINT16 from 0 to 65535, got 70000."),
        ("INT16", [2], [1, -32769], "Expected INT16 from -32768 to 32767, got -32769."),
        ("INT32", [2], [1], "got 1 for [2], which has 2."),
        ("BYTES", [1], ["a", "b"], "got 2 for [1], which has 1."),
        ("FP64", [2**40, 2**40], [1.0], "got 1 for ["),
        ("BOOL", [0], [True], "got 1 for [0], which has 0."),
        *(("BYTES", [2], blob, text) for blob, text in INVALID_BYTES_DATA),
        ("BOOL", [2], b"\1\2", "Expected bytes with the value 0 or 1 for BOOL, got 2."),
        ("INT8", [2], b"\1\2\3", "got 3 for INT8 [2] (2 bytes)."),
        ("FP16", [2], b"\1\2\3", "got 3 for FP16 [2] (4 bytes)."),
        ("BF16", [2], b"\1\2\3", "got 3 for BF16 [2] (4 bytes)."),
        ("FP64", [2**40, 2**40], bytes(8), f"({2**83} bytes)."),
        ("INT32", [2], b"\0", "got 1 for INT32 [2] (8 bytes)."),
    ],
)
def test_both_transports(echoes, datatype: str, shape: list[int], values: Any, text: str) -> None:
    """G1, G2, G3, B5: the message is the same in JSON and in contents, and in binary data and in raw entries."""
    service = echoes(datatype, *[-1] * len(shape))
    forms = FORMS[1::2] if isinstance(values, bytes) else FORMS[::2]
    rest, rpc = (service.forms[form].infer([("x", datatype, shape, values)]) for form in forms)
    assert (rest.kind, rest.text) == (rpc.kind, rpc.text)
    assert rest.kind == "INVALID_ARGUMENT"
    assert rest.text.startswith('Input "x": ')
    assert text in rest.text
