"""Rules for the tensors of a request, in all forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from app.protocol.types import MetadataTensor
from oip_conformance.values import ODD_SHAPES, VALUES
from oip_conformance.wires import CONTENTS, exact
from tests.kit import models


def takes(form: str, datatype: str) -> str:
    """Return `form`, or the raw form if `form` has no field for the datatype (G3)."""
    return "grpc raw" if form == "grpc typed" and datatype not in CONTENTS else form


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize("shape", [[2], [2, 1], [1, 2, 1]])
def test_every_datatype_is_unchanged(echoes, form: str, datatype: str, shape: list[int]) -> None:
    """R8: a tensor of any datatype and rank is returned unchanged, with the same shape."""
    service = echoes(datatype, *[-1] * len(shape))
    response = service.forms[takes(form, datatype)].infer(
        [("x", datatype, shape, VALUES[datatype])]
    )
    got_datatype, got_shape, values = response.outputs["y"]
    assert (got_datatype, got_shape) == (datatype, shape)
    assert exact(datatype, values) == exact(datatype, VALUES[datatype])


def test_scalar_has_one_element(serve, form: str) -> None:
    """R9: the shape [] has one element and does not match [1]."""
    client = serve(models.echo("FP32", [])).forms[form]
    assert client.infer([("x", "FP32", [], [1.5])]).outputs == {"y": ("FP32", [], [1.5])}
    assert (
        client.infer([("x", "FP32", [1], [1.5])]).text
        == 'Input "x": invalid shape. Expected [], got [1].'
    )
    assert client.infer([("x", "FP32", [], [])]).kind == "INVALID_ARGUMENT"
    assert client.infer([("x", "FP32", [], [1.5, 2.5])]).kind == "INVALID_ARGUMENT"


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize("shape", [[0, 3], [3, 0], [0, 0]])
def test_accepts_zero_size_tensors(echoes, form: str, datatype: str, shape: list[int]) -> None:
    """R9, G5: a tensor without elements is valid."""
    response = (
        echoes(datatype, -1, -1).forms[takes(form, datatype)].infer([("x", datatype, shape, [])])
    )
    assert response.outputs == {"y": (datatype, shape, [])}


@pytest.mark.parametrize(
    ("shape", "values", "text"),
    ODD_SHAPES,
)
def test_rejects_invalid_shapes(
    echoes, form: str, shape: list[int], values: list, text: str
) -> None:
    """R9: a shape that is negative, too large or does not match the size of the data is rejected."""
    response = echoes("FP64", -1, -1).forms[form].infer([("x", "FP64", shape, values)])
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text.startswith(f'Input "x": {text}')


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize("shape", [[1], [3], [0]])
def test_rejects_data_that_does_not_match_the_shape(
    echoes, form: str, datatype: str, shape: list[int]
) -> None:
    """R9, B5, G2, G3: a tensor with more or less data than its shape requires is rejected."""
    response = (
        echoes(datatype)
        .forms[takes(form, datatype)]
        .infer([("x", datatype, shape, VALUES[datatype])])
    )
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text.startswith('Input "x": wrong number of ')
    assert f"[{shape[0]}]" in response.text
    assert "got " in response.text


@pytest.mark.parametrize(
    ("datatype", "value", "text"),
    [
        ("UINT8", 256, "UINT8 from 0 to 255, got 256"),
        ("UINT16", 65536, "UINT16 from 0 to 65535, got 65536"),
        ("INT8", 300, "INT8 from -128 to 127, got 300"),
        ("INT8", -129, "INT8 from -128 to 127, got -129"),
        ("INT16", 32768, "INT16 from -32768 to 32767, got 32768"),
        ("INT16", -32769, "INT16 from -32768 to 32767, got -32769"),
    ],
)
@pytest.mark.parametrize("written", ["rest json", "grpc typed"])
def test_rejects_numbers_out_of_range(
    echoes, written: str, datatype: str, value: int, text: str
) -> None:
    """R11, G3: a number outside the datatype's range is rejected with the same message on both transports."""
    response = echoes(datatype).forms[written].infer([("x", datatype, [2], [1, value])])
    assert (response.kind, response.text) == (
        "INVALID_ARGUMENT",
        f'Input "x": value out of range. Expected {text}.',
    )


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_nan_is_unchanged(echoes, form: str, datatype: str) -> None:
    """R12: NaN is returned as NaN in every form, and is null in JSON."""
    response = (
        echoes(datatype).forms[takes(form, datatype)].infer([("x", datatype, [2], [math.nan, 1.5])])
    )
    assert exact(datatype, response.outputs["y"][2]) == exact(datatype, [math.nan, 1.5])


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_infinity_needs_binary_data(echoes, bits: str, datatype: str) -> None:
    """R12: infinities are returned unchanged in binary data and on gRPC."""
    response = (
        echoes(datatype)
        .forms[takes(bits, datatype)]
        .infer([("x", datatype, [2], [math.inf, -math.inf])])
    )
    assert response.outputs["y"] == (datatype, [2], [math.inf, -math.inf])


@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_invalid_utf8_needs_binary_data(echoes, bits: str) -> None:
    """R14: arbitrary bytes, including invalid UTF-8, are returned unchanged in binary data and on gRPC."""
    values = [b"\xff\x00\xfe", b"", b"\x00", bytes(range(256))]
    assert echoes("BYTES").forms[bits].infer([("x", "BYTES", [4], values)]).outputs["y"] == (
        "BYTES",
        [4],
        values,
    )


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        *(([-1], [3, 1]), ([-1], [0, 1]), ([-1], [1, 1]), ([1], [1, 1]), ([3], [3, 1])),
        *(([-1, 1], [3]), ([-1, 1], [0]), ([1, 1], [1]), ([3, 1], [3])),
    ],
)
def test_columns_match_vectors(serve, form: str, declared: list[int], sent: list[int]) -> None:
    """R15: [N,1] matches a declared rank 1, [N] matches [-1,1] and [N,1], and predict() receives the declared rank."""
    shapes = []

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        shapes.append(list(x.shape))
        return x

    tensors = [MetadataTensor("x", "INT32", declared)], [MetadataTensor("y", "INT32", declared)]
    values, shape = list(range(sent[0])), [sent[0], 1][: len(declared)]
    response = (
        serve(models.model(*tensors, predict)).forms[form].infer([("x", "INT32", sent, values)])
    )
    assert response.outputs["y"] == ("INT32", shape, values)
    assert shapes == [shape]


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        ([2], [3, 1]),
        ([1], [3, 1]),
        ([2, 1], [3]),
        ([-1], [1, 3]),
        ([3], [1, 3]),
        ([-1, 2], [3]),
        ([-1, -1], [3]),
    ],
)
def test_rejects_other_ranks(echoes, form: str, declared: list[int], sent: list[int]) -> None:
    """R15: other ranks and sizes are rejected, and the message has the shape that the client sent."""
    response = echoes("INT32", *declared).forms[form].infer([("x", "INT32", sent, [1, 2, 3])])
    shapes = [f"[{','.join(map(str, shape))}]" for shape in (declared, sent)]
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text == f'Input "x": invalid shape. Expected {shapes[0]}, got {shapes[1]}.'
