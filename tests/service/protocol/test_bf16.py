"""BF16: rounding in both directions, and arrays of ml_dtypes, which are optional."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from app.inference.predict_adapter import ModelAdapter
from app.protocol.errors import ConfigurationError
from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import canonical_bytes
from tests.kit import models

ROOT = Path(__file__).parents[3]
X, Y = MetadataTensor("x", "BF16", [-1]), MetadataTensor("y", "BF16", [-1])
LARGEST = (2 - 2**-7) * 2.0**127
EVERY_BIT_PATTERN = np.arange(2**16).astype("<u2").tobytes()


def nearest(number: float) -> float:
    """Return the nearest BF16 to a finite `number`, ties to even. It has 8 binary digits, but none below 2**-133."""
    last = Fraction(2) ** max(math.frexp(number)[1] - 8, -133)
    rounded = float(round(Fraction(number) / last) * last)
    return math.copysign(rounded if abs(rounded) <= LARGEST else math.inf, number)


def numbers() -> np.ndarray:
    """Return numbers of every magnitude, many of them on, just below and just above the middle of two BF16."""
    random = np.random.default_rng(0)
    scaled = random.standard_normal(5000) * 10.0 ** random.integers(-45, 38, 5000)
    middles = (128.5 + np.arange(128)) * 2.0 ** random.integers(-140, 119, (10, 1))
    beside = [
        np.nextafter(middles, 0),
        middles,
        np.nextafter(middles, np.inf),
        middles.astype("f4") * (1 + 2e-7),
    ]
    special = [0.0, -0.0, LARGEST, 2.0**-133, 2.0**-134, 5e-324, 1e-300]
    positive = np.concatenate([scaled, *(array.ravel() for array in beside), special])
    return np.concatenate([positive, -positive])


def test_json_is_rounded_to_nearest(echoes) -> None:
    """R23, R11: each JSON number is rounded once, to the nearest BF16, in short lists and in long ones."""
    sent = numbers().tolist()
    expected = [nearest(number) for number in sent]
    service = echoes("BF16")
    (_, _, got) = service.rest.infer([("x", "BF16", [len(sent)], sent)]).outputs["y"]
    assert canonical_bytes("FP32", got) == canonical_bytes("FP32", expected)
    for start in range(0, len(sent), 100):
        (_, _, got) = service.rest.infer([("x", "BF16", [10], sent[start : start + 10])]).outputs[
            "y"
        ]
        assert canonical_bytes("FP32", got) == canonical_bytes("FP32", expected[start : start + 10])


@pytest.mark.parametrize("form", ["rest binary", "grpc raw"])
def test_every_bit_pattern_is_unchanged(serve, form: str) -> None:
    """R23, B1, G4: all bit patterns are unchanged in binary forms, and are decoded to the upper half of a float32."""
    received = []

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        received.append(x)
        return x

    response = (
        serve(models.model([X], [Y], predict))
        .forms[form]
        .infer([("x", "BF16", [2**16], EVERY_BIT_PATTERN)])
    )
    raw = (
        response.raw.raw_output_contents[0] if form == "grpc raw" else response.raw.data[-(2**17) :]
    )
    assert raw == EVERY_BIT_PATTERN
    reference = np.frombuffer(EVERY_BIT_PATTERN, ml_dtypes.bfloat16).astype("f4")
    np.testing.assert_array_equal(received[0], reference)


def returned(serve, value: Any, datatype: str = "BF16") -> Any:
    """Return the response of a model without inputs that returns `value` as its only output."""
    module = models.model([], [MetadataTensor("y", datatype, [-1])], lambda _: value)
    return serve(module).forms["rest binary"].infer([])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8", ml_dtypes.bfloat16])
def test_results_are_rounded_to_nearest(serve, dtype: Any) -> None:
    """R23: floats that predict() returns are rounded once, to the nearest BF16."""
    with np.errstate(over="ignore"):
        array = numbers().astype(dtype)
    array = array[np.isfinite(array)]
    expected = [nearest(number) for number in array.tolist()]
    output = returned(serve, array).outputs["y"]
    assert canonical_bytes("BF16", output.values) == canonical_bytes("BF16", expected)


def test_nan_and_infinity_of_results(serve) -> None:
    """R23: in a result, infinity stays, and each NaN stays NaN, also if only the lower half of its bits is set."""
    bits = np.array(
        [0x7F800000, 0xFF800000, 0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF], "<u4"
    )
    (_, _, got) = returned(serve, bits.view("<f4")).outputs["y"]
    assert got[:2] == [math.inf, -math.inf]
    assert np.isnan(got[2:]).all()


@pytest.mark.parametrize("value", [3.4e38, -1e39, float(2**128 - 2**119)])
def test_results_out_of_range(serve, value: float) -> None:
    """R23: a result that rounds beyond the largest BF16 is an error of the model."""
    response = returned(serve, [1.0, value])
    assert response.kind == "INTERNAL"
    assert f"Expected BF16 within ±{LARGEST}, got {value}" in response.text


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_results_of_ml_dtypes(serve, datatype: str) -> None:
    """R23: predict() may return bfloat16 of ml_dtypes for each floating-point output."""
    response = returned(serve, np.array([1.5, -2, np.nan], ml_dtypes.bfloat16), datatype)
    expected = canonical_bytes(datatype, [1.5, -2, math.nan])
    assert canonical_bytes(datatype, response.outputs["y"].values) == expected


def bfloat16_input(_: Any, x: NDArray[ml_dtypes.bfloat16]) -> Any:
    return check_argument(x)


def optional_bfloat16_input(_: Any, x: NDArray[ml_dtypes.bfloat16] | None = None) -> Any:
    return check_argument(x)


def bfloat16_inputs(_: Any, inputs: dict[str, NDArray[ml_dtypes.bfloat16]]) -> Any:
    return check_argument(inputs["x"])


def check_argument(x: Any) -> Any:
    assert x.dtype == ml_dtypes.bfloat16
    assert x.flags.carray
    return x * ml_dtypes.bfloat16(2)


@pytest.mark.parametrize("predict", [bfloat16_input, optional_bfloat16_input, bfloat16_inputs])
@pytest.mark.parametrize("form", ["rest json", "rest binary", "grpc raw"])
def test_annotation_bfloat16(serve, form: str, predict: Any) -> None:
    """R23, C2: predict() receives bfloat16 of ml_dtypes if the annotation asks for it."""
    response = (
        serve(models.model([X], [Y], predict))
        .forms[form]
        .infer([("x", "BF16", [2, 1], [0.75, -1.5])])
    )
    assert response.outputs == {"y": ("BF16", [2], [1.5, -3.0])}


@pytest.mark.parametrize("predict", [bfloat16_input, optional_bfloat16_input, bfloat16_inputs])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_annotation_bfloat16_of_another_datatype(datatype: str, predict: Any) -> None:
    """R23, C2: the annotation of an input that is not BF16 prevents the start."""
    text = f'parameter "x": invalid annotation bfloat16. Expected BF16 in METADATA, got {datatype}'
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(models.model([MetadataTensor("x", datatype, [-1])], [Y], predict))


def test_ml_dtypes_is_not_imported() -> None:
    """A model with a BF16 input runs without ml_dtypes, which may not be installed."""
    code = """if True:
        import sys
        sys.modules["ml_dtypes"] = None
        from app.testing import serve
        from tests.kit import models
        with serve(models.echo("BF16", [-1])) as infer:
            assert infer(x=[0.1, 2.0])["y"].tolist() == [0.10009765625, 2.0]"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
