"""The results of predict(), converted to outputs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from app.inference.call import INFER, Call
from app.inference.predict_adapter import ModelAdapter
from app.protocol.datatypes import DATATYPES
from app.protocol.errors import ModelError
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import ResponseOutput
from tests.kit import models


def call(module: Any) -> dict[str, Any]:
    """Return the data of each output of a model without inputs."""
    outputs, _ = ModelAdapter(module).predict(None, InferenceRequest([]), (Call(INFER),))
    return {name: output.data for name, output in outputs.items()}


def returning(value: Any, datatype: str = "FP32", shape: tuple[int, ...] = (-1,)) -> Any:
    """Return a model without inputs whose only output is `value`."""
    return models.model([], [MetadataTensor("y", datatype, list(shape))], lambda _: value)


# Value, datatype and elements of a vector.
CONVERTED: list[tuple[Any, str, Any]] = [
    (np.array([1.5, 1e-300]), "FP32", [1.5, 0]),
    (np.array([1, 2]), "INT8", [1, 2]),
    (np.array([1, 2], "u1"), "INT64", [1, 2]),
    (np.array([np.inf, np.nan]), "FP16", [np.inf, np.nan]),
    (np.array([1.0, 2.0], ">f8"), "FP64", [1, 2]),
    ([1.0, 2.0], "FP32", [1, 2]),
    ([], "INT32", []),
    ([2**63 + 1, np.int64(1)], "UINT64", [2**63 + 1, 1]),
    ([True, False], "BOOL", [True, False]),
    (["a", "é"], "BYTES", ["a", "é"]),
    (np.array(["a", "bc"]), "BYTES", ["a", "bc"]),
    (["a", b"\xff"], "BYTES", [b"a", b"\xff"]),
    ([b"\xff", b""], "BYTES", [b"\xff", b""]),
    ([np.str_("b"), np.str_("aé")], "BYTES", ["b", "aé"]),
]


@pytest.mark.parametrize(
    ("value", "datatype", "shape", "expected"),
    [
        (np.array([[1, 2], [3, 4]], order="F"), "INT32", (2, 2), [[1, 2], [3, 4]]),
        ([], "FP32", (-1, 2), np.empty((0, 2))),
        ([], "BYTES", (-1, -1), np.empty((0, 0))),
        ([[], []], "INT64", (-1, 0), [[], []]),
        ([[2**64 - 1, 1], [2**63, 0]], "UINT64", (-1, 2), [[2**64 - 1, 1], [2**63, 0]]),
        (3.5, "FP32", (), 3.5),
        ({"y": [1.0]}, "FP32", (1,), [1]),
        (([1.0],), "FP32", (1,), [1]),
        *((value, datatype, (-1,), expected) for value, datatype, expected in CONVERTED),
    ],
)
def test_converts_results_without_loss(
    value: Any, datatype: str, shape: tuple[int, ...], expected: Any
) -> None:
    """A returned value is converted to an array of the declared datatype if no value is lost."""
    array = call(returning(value, datatype, shape))["y"]
    assert array.dtype == DATATYPES[datatype].dtype
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))


# Value, datatype and error message of a vector.
REJECTED: list[tuple[Any, str, Any]] = [
    (
        [1, 2],
        "FP32",
        'Output "y": predict.. returned .* does not match METADATA: invalid datatype. Expected FP32, got int64',
    ),
    ([1.0], "INT32", "invalid datatype. Expected INT32, got float64"),
    ([True], "INT32", "invalid datatype. Expected INT32, got bool"),
    ([1], "BOOL", "invalid datatype. Expected BOOL, got int64"),
    (["a"], "FP32", "invalid datatype. Expected FP32, got strings"),
    ([1], "BYTES", 'Output "y": .*data. Expected strings or bytes for BYTES, got int'),
    ([300], "UINT8", "value out of range. Expected UINT8 from 0 to 255, got 300"),
    ([-1], "UINT64", "value out of range. Expected UINT64 from 0 to 18446744073709551615, got -1"),
    ([2**64 - 1, -1], "UINT64", "-1 out of bounds for uint64"),
    ([2**64 - 1, 1.5], "UINT64", "invalid datatype. Expected UINT64, got float64"),
    ([2**64 - 1, 1], "INT64", "Expected INT64 from .*, got 18446744073709551615"),
    (np.array([2**64 - 1], "u8"), "INT64", "Expected INT64 from .*, got 18446744073709551615"),
    ([1e39], "FP32", "value out of range. Expected FP32 within .*, got 1e.39"),
    ([[1.0]], "FP32", r"invalid shape. Expected \[-1\], got \[1,1\]"),
    (
        np.ma.array([1, 2], mask=[0, 1]),
        "INT64",
        "data has masked elements, which have no value. Use filled..",
    ),
    (np.ma.array([b"a", b"b"], mask=[0, 1]), "BYTES", "data has masked elements"),
    ([1.0, None], "FP64", "Expected FP64, got objects: NoneType, float .a missing number is NaN"),
    (
        InferenceResponse([ResponseOutput("y", "FP32", data=[1])] * 2),
        "FP32",
        'an output twice: "y", "y".',
    ),
    (
        InferenceResponse([ResponseOutput("y", "INT64", data=[300])]),
        "UINT8",
        "Expected UINT8 from 0 to 255, got 300",
    ),
    (np.float32, "FP32", "Expected FP32, got objects: type"),
    (None, "FP32", "predict.. returned None"),
    ({}, "FP32", 'Output "y": not returned by predict.., which returned none'),
    (
        {"y": [1.0], "z": 1},
        "FP32",
        'Output "z": returned by predict.., but not declared in METADATA',
    ),
    ((1.0, 2.0), "FP32", "returned 2 value.s. for 1 outputs"),
]


@pytest.mark.parametrize(
    ("value", "datatype", "shape", "text"),
    [
        ([1.0, 2.0], "FP32", (3,), r"invalid shape. Expected \[3\], got \[2\]"),
        (
            [[1.0], [1.0, 2.0]],
            "FP32",
            (-1, -1),
            'Output "y": .*data is not an array. Got .*. Pad rows to the same',
        ),
        *((value, datatype, (-1,), text) for value, datatype, text in REJECTED),
    ],
)
def test_rejects_results_that_do_not_match_metadata(
    value: Any, datatype: str, shape: tuple[int, ...], text: str
) -> None:
    """A returned value of another kind, range, rank or size than METADATA declares is an error of the model."""
    with pytest.raises(ModelError, match=text):
        call(returning(value, datatype, shape))


class Unconvertible:
    """A value like a torch tensor that requires gradients, or that is on a GPU."""

    def __init__(self, error: Exception):
        self._error = error

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise self._error


@pytest.mark.parametrize("value", [Unconvertible, lambda error: [Unconvertible(error)]])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_a_value_that_cannot_be_an_array_is_not_an_exception_of_predict(
    value: Any, datatype: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of __array__() names the output. The log contains no traceback of the service."""
    error = RuntimeError("Use tensor.detach()")
    text = 'Output "y": .* cannot convert (Unconvertible|list) to an array .RuntimeError.. Got Use'

    with pytest.raises(ModelError, match=text):
        call(returning(value(error), datatype))

    assert "RuntimeError" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_type_error_of_another_library_has_no_advice_for_lists() -> None:
    """The advice to pad rows is for lists of different lengths, not for a tensor on a GPU."""
    with pytest.raises(ModelError) as caught:
        call(returning(Unconvertible(TypeError("Use Tensor.cpu()"))))

    assert str(caught.value).endswith("(TypeError). Got Use Tensor.cpu().")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(1), 1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (2**64 - 1, 2**64 - 1),
        ([1], None),
        (2**70, None),
        (-(2**70), None),
        ("\ud800", None),
        (float("inf"), None),
        (np.float32("nan"), None),
    ],
)
def test_response_parameters_are_validated(serve, form: str, value: Any, expected: Any) -> None:
    """R17: both transports send the same response and output parameters. An invalid value is an error of the model."""
    output = ResponseOutput("y", "FP32", data=[1], parameters={"p": value})
    plain = ResponseOutput("y", "FP32", data=[1])
    responses = [InferenceResponse([output]), InferenceResponse([plain], parameters={"p": value})]
    for response in responses:
        got = serve(returning(response)).forms[form].infer([])
        if expected is None:
            assert got.kind == "INTERNAL"
            assert (
                'parameter "p". Expected a string, a finite number of 64 bits or a boolean'
                in got.text
            )
        else:
            assert got.is_success
            assert got.parameters == response.parameters


def test_response_parameters_without_value(serve, form: str) -> None:
    """R17: a parameter of the response that is None is left out."""
    output = ResponseOutput("y", "FP32", data=[1], parameters={"p": None})
    response = InferenceResponse([output], parameters={"q": None})
    assert serve(returning(response)).forms[form].infer([]).parameters == {}


def test_binary_data_size_comes_from_the_transport(serve, form: str) -> None:
    """B6: a binary_data_size in the parameters of a returned output does not affect the response."""
    output = ResponseOutput("y", "FP32", data=[1], parameters={"binary_data_size": 4, "p": 1})
    got = serve(returning(InferenceResponse([output]))).forms[form].infer([])
    assert got.outputs == {"y": ("FP32", [1], [1])}


def test_a_list_of_dicts_is_one_output() -> None:
    """A returned list of dicts is the value of a single pd_json output."""
    rows = [{"a": 1, "b": 2}]
    objects = models.model([], [MetadataTensor("a", "BYTES", [-1], "pd_json")], lambda _: rows)
    assert [*map(json.loads, call(objects)["a"])] == rows


def test_rejects_a_list_for_two_outputs() -> None:
    """A returned list is one value, so it is an error of the model if there are two outputs."""
    module = models.model(
        [], [MetadataTensor(name, "FP32", [-1]) for name in "xy"], lambda _: [[1.0], [2.0]]
    )
    with pytest.raises(
        ModelError, match="returned a list .one value. for 2 outputs. Return a tuple, or a dict"
    ):
        call(module)
