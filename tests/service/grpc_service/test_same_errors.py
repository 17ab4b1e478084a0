"""Errors that are the same in all forms of a request."""

from __future__ import annotations

from typing import Any

import pytest

from oip_conformance.wires import FORMS


@pytest.fixture(autouse=True)
def check_valid_request_afterward(service):
    """R20: check after each test that a valid call succeeds."""
    yield
    assert service.grpc.infer([("a", "FP32", [1, 2], [1, 2])], ["sum"]).outputs == {
        "sum": ("FP32", [1], [3])
    }


GOOD = ("a", "FP32", [1, 2], [1.0, 2.0])


@pytest.mark.parametrize(
    ("inputs", "options", "kind", "text"),
    [
        ([GOOD], {"model": "other"}, "NOT_FOUND", 'Model not found. Expected "test", got "other"'),
        (
            [GOOD],
            {"version": "2"},
            "NOT_FOUND",
            'Model "test": version not found. Expected "1", got "2"',
        ),
        (
            [GOOD],
            {"outputs": ["y"]},
            "INVALID_ARGUMENT",
            'Unknown output. Expected "sum", "double", got "y"',
        ),
        ([GOOD], {"outputs": ["sum", "sum"]}, "INVALID_ARGUMENT", 'Output "sum": requested twice'),
        ([], {}, "INVALID_ARGUMENT", 'Input "a": missing. Expected "a" (optional: "b"), got none'),
        ([GOOD, GOOD], {}, "INVALID_ARGUMENT", 'Input "a": sent twice'),
        (
            [GOOD, ("c 🌷\n", "FP32", [0], [])],
            {},
            "INVALID_ARGUMENT",
            'Unknown input. Expected "a", "b"',
        ),
        (
            [("a", "FP33", [0, 2], [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid datatype. Expected one of BOOL, UINT8, ',
        ),
        (
            [("a", "", [0, 2], [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid datatype. Expected one of BOOL, UINT8, ',
        ),
        (
            [("a", "INT8", [0, 2], [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid datatype. Expected FP32, got INT8',
        ),
        (
            [("a", "FP32", [2], [1.0, 2.0])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid shape. Expected [-1,2], got [2]',
        ),
        (
            [("a", "FP32", [0, 3], [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid shape. Expected [-1,2], got [0,3]',
        ),
        (
            [("a", "FP32", [-1, 2], [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid shape. Expected integers of at least 0',
        ),
        (
            [("a", "FP32", [1] * 65, [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid shape. Expected at most 64 dimensions',
        ),
        (
            [("a", "FP32", [2**62, 0], [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": shape too large for an array. Got [4611686018427387904,0]',
        ),
        (
            [("n" * 9000, "FP32", [0], [])],
            {},
            "INVALID_ARGUMENT",
            'Unknown input. Expected "a", "b", got "nnnnnn',
        ),
    ],
)
def test_same_error_in_all_forms(
    service, inputs: list, options: dict, kind: str, text: str
) -> None:
    """G1: an error has the same status and message in all four forms."""
    responses = [
        client.infer(inputs, **options) for client in map(service.forms.__getitem__, FORMS)
    ]
    assert {(response.kind, response.text) for response in responses} == {(kind, responses[0].text)}
    assert responses[0].text.startswith(text)


@pytest.mark.parametrize(
    ("datatype", "shape", "values"),
    [
        ("INT8", [2], [1, 300]),
        ("UINT16", [2], [70000, 1]),
        ("INT32", [2], [1]),
        ("BYTES", [1], ["a", "b"]),
        ("FP64", [2**40, 2**40], [1.0]),
        ("BOOL", [0], [True]),
    ],
)
def test_same_error_for_elements(echoes, datatype: str, shape: list[int], values: list) -> None:
    """G1, G3: an invalid element has the same error message in JSON and in contents."""
    service = echoes(datatype, *[-1] * len(shape))
    rest, typed = (
        service.forms[form].infer([("x", datatype, shape, values)])
        for form in ("rest json", "grpc typed")
    )
    assert rest.kind == typed.kind == "INVALID_ARGUMENT"
    assert rest.text == typed.text
    assert rest.text.startswith('Input "x": ')


@pytest.mark.parametrize(
    ("datatype", "shape", "blob"),
    [
        ("BOOL", [2], b"\1\2"),
        ("INT8", [2], b"\1\2\3"),
        ("FP16", [2], b"\1\2\3"),
        ("BF16", [2], b"\1\2\3"),
        ("FP64", [2**40, 2**40], bytes(8)),
        ("BYTES", [1], b"\1\0\0"),
        ("BYTES", [1], b"\xff\xff\xff\xff"),
        ("BYTES", [2], b"\1\0\0\0a"),
        ("INT32", [2], b"\0"),
    ],
)
def test_same_error_for_binary_data(echoes, datatype: str, shape: list[int], blob: Any) -> None:
    """G1, G2, B5: invalid binary data have the same error message in REST and in raw entries."""
    service = echoes(datatype, *[-1] * len(shape))
    rest, raw = (
        service.forms[form].infer([("x", datatype, shape, blob)])
        for form in ("rest binary", "grpc raw")
    )
    assert rest.kind == raw.kind == "INVALID_ARGUMENT"
    assert rest.text == raw.text
    assert rest.text.startswith('Input "x": ')
