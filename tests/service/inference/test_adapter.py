"""The adapter of predict(): its signature, arguments, return values, EXAMPLE and warm-up."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.api import (
    ConfigurationError,
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    ModelError,
    ModelMetadata,
    RequestInput,
    ResponseOutput,
)
from app.inference.adapter import ModelAdapter
from app.inference.startup_errors import reason
from app.protocol.datatypes import DATATYPES
from tests.service import models
from tests.service.conftest import FORMS


def request(*inputs: RequestInput) -> InferenceRequest:
    return InferenceRequest(list(inputs))


def call(module: Any, *inputs: RequestInput) -> dict[str, Any]:
    return {name: output.data for name, output in ModelAdapter(module)(None, request(*inputs))[0].items()}


def returning(value: Any, datatype: str = "FP32", shape: tuple[int, ...] = (-1,)) -> Any:
    """Return a model without inputs whose only output is `value`."""
    return models.model([], [MetadataTensor("y", datatype, list(shape))], lambda _: value)


X = MetadataTensor("x", "FP32", [-1])


def takes_other(_, other): ...
def takes_nothing(): ...
def takes_any(_, *x): ...
def takes_all(_, **x): ...
def takes_a_set(_, x: set): ...
def takes_an_unknown(_, x: Unknown): ...  # type: ignore[name-defined]  # noqa: F821
def takes_a_misspelt(_, x: np.ndarry): ...  # type: ignore[name-defined]
def takes_half(_, x: "np.ndarray["): ...  # type: ignore[syntax]  # noqa: F722
def takes_a_list(_, x: [np.ndarray]): ...  # type: ignore[valid-type]
def takes_more(_, x, z): ...
def takes_one(x: np.ndarray): ...


class Callable:
    def __call__(self, _, x): ...


async def is_async(_, x): ...


def yields(_, x):
    yield x


async def yields_later(_, x):
    yield x


@pytest.mark.parametrize(
    ("predict", "text"),
    [
        (takes_other, 'predict.. takes "other" after the model, METADATA declares "x"'),
        (takes_other, 'METADATA declares "x"; use the same names, or a single parameter that is a pd.DataFrame, '),
        (takes_more, 'predict.. takes "x", "z" after the model'),
        (takes_one, 'takes none after the model, METADATA declares "x"; use the same names'),
        (takes_nothing, "takes no parameter"),
        (takes_any, 'parameter "x": expected no'),
        (takes_all, 'parameter "x": expected no'),
        (takes_a_set, 'parameter "x": cannot be given a set; expected np.ndarray'),
        (takes_an_unknown, "annotation cannot be resolved: name 'Unknown'"),
        (takes_a_misspelt, "test_adapter.py, line .*annotation cannot be resolved: module 'numpy' has no .*'ndarry'"),
        (takes_half, "annotation cannot be resolved: "),
        (takes_a_list, r'parameter "x": cannot be given a \[<class'),
        (partial(takes_more, z=1), "predict is a partial; expected a plain function, by def"),
        (Callable(), "predict is a Callable; expected a plain function"),
        (None, "predict is a NoneType; expected a plain function"),
        (is_async, "predict.. is async or a generator; expected a plain function"),
        (yields, "test_adapter.py, line .*predict.. is async or a generator; expected a plain function"),
        (yields_later, "predict.. is async or a generator"),
    ],
)
def test_rejects_signatures_that_do_not_match_metadata(predict: Any, text: str) -> None:
    """A predict() whose signature does not match METADATA fails at startup."""
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(models.model([X], [X], predict))


@pytest.mark.parametrize("name", ["my-image", "class", "1"])
def test_error_explains_inputs_that_are_not_identifiers(name: str) -> None:
    """The error shows how to receive an input whose name cannot be the name of a parameter."""
    tensors = [X, MetadataTensor(name, "FP32", [-1])]
    with pytest.raises(
        ConfigurationError, match=f'"{name}".*; use the same names, or a single parameter that is a pd.DataFrame, '
    ):
        ModelAdapter(models.model(tensors, [X], takes_more))


@pytest.mark.parametrize("name", ["load", "warm_up"])
@pytest.mark.parametrize("function", [is_async, yields])
def test_rejects_async_load_and_warm_up(name: str, function: Any) -> None:
    """A load() or warm_up() that is async or a generator fails at startup."""
    module = models.echo("FP32", [-1])
    setattr(module, name, function)
    with pytest.raises(ConfigurationError, match=rf"test_adapter.py, line \d+: {name}\(\) is async or a generator"):
        ModelAdapter(module)


@pytest.mark.parametrize("name", ["METADATA", "load", "predict"])
def test_rejects_missing_parts(name: str) -> None:
    """A module without METADATA, load() or predict() fails at startup."""
    module = models.echo("FP32", [-1])
    delattr(module, name)
    with pytest.raises(ConfigurationError, match=f"{name} is missing"):
        ModelAdapter(module)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"name": "iris"}, "expected a ModelMetadata, got dict"),
        (ModelMetadata("", "1", "p", [], []), "METADATA, name: expected text without a slash, got ''"),
        (ModelMetadata("m", 1, "p", [], []), "METADATA, version: expected text without a slash, got 1"),  # type: ignore[arg-type]
        (ModelMetadata("a/b", "1", "p", [], []), "METADATA, name: expected text without a slash, got 'a/b'"),
        (ModelMetadata("m", "1", "p", [X, X], []), 'METADATA declares "x" twice'),
        (
            ModelMetadata("m", "1", "p", [{"name": "x", "datatype": "FP32"}], []),  # type: ignore[list-item]
            "METADATA, inputs: expected a list of MetadataTensor, got .{'name': 'x', 'datatype': 'FP32'}.$",
        ),
        (ModelMetadata("m", "1", "p", {"x": "FP32"}, []), "inputs: expected a list .*, got {'x': 'FP32'}$"),  # type: ignore[arg-type]
        (ModelMetadata("m", "1", "p", X, []), "inputs: expected a list .*, got MetadataTensor"),  # type: ignore[arg-type]
        (ModelMetadata("m", "1", "p", [X], ["y"]), "outputs: expected a list .*, got .'y'.$"),  # type: ignore[list-item]
    ],
)
def test_rejects_invalid_metadata(metadata: Any, text: str) -> None:
    """Invalid METADATA fails at startup, and the error names the field."""
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(SimpleNamespace(__name__="m", METADATA=metadata, load=None, predict=lambda _: None))


@pytest.mark.parametrize(("datatype", "shape"), [("fp32", [1]), ("FP32", [-2]), ("FP32", [1.0]), ("FP32", [True])])
def test_rejects_invalid_metadata_tensors(datatype: str, shape: list) -> None:
    """R1, R9: a declared tensor needs a known datatype and dimensions of at least -1."""
    with pytest.raises(ConfigurationError, match='METADATA, tensor "x"'):
        MetadataTensor("x", datatype, shape)


def test_tuple_shape_becomes_a_list() -> None:
    """A shape declared as a tuple becomes a list, so that it compares equal to the shape of a request."""
    assert MetadataTensor("x", "FP32", (-1, 2)).shape == [-1, 2]  # type: ignore[arg-type]


def test_passes_inputs_by_name() -> None:
    """predict() receives one argument per input by name, in any order, and the default for an absent input."""
    a, b = RequestInput("a", "FP32", [1, 2], [1, 2]), RequestInput("b", "INT64", [2], [3, 4])
    assert call(models.two_by_two(), b, a)["double"].tolist() == [6, 8]
    assert call(models.two_by_two(), a)["double"].tolist() == [14]


def test_passes_all_inputs_in_a_dict() -> None:
    """A parameter annotated dict[str, np.ndarray] receives all inputs, even if their names are not identifiers."""
    seen: dict[str, Any] = {}

    def predict(_: Any, everything: dict[str, np.ndarray]) -> Any:
        seen.update(everything)
        return everything["sepal length"]

    module = models.model([MetadataTensor("sepal length", "FP32", [-1])], [X], predict)
    assert call(module, RequestInput("sepal length", "FP32", data=[1, 2]))["x"].tolist() == [1, 2]
    assert seen.keys() == {"sepal length"}


def test_rejects_a_list_for_two_outputs() -> None:
    """A returned list is one value, so it is an error of the model if there are two outputs."""
    module = models.model([], [X, MetadataTensor("y", "FP32", [-1])], lambda _: [[1.0], [2.0]])
    with pytest.raises(
        ModelError, match="returned a list, which is one value, for 2 outputs; return a tuple, or a dict"
    ):
        call(module)


def test_passes_the_request() -> None:
    """A parameter annotated InferenceRequest receives the whole request."""

    def predict(_: Any, everything: InferenceRequest) -> Any:
        return everything.inputs[0].data * everything.parameters["factor"]

    module = models.model([X], [X], predict)
    sent = InferenceRequest([RequestInput("x", "FP32", data=[1, 2])], parameters={"factor": 2})
    assert ModelAdapter(module)(None, sent)[0]["x"].data.tolist() == [2, 4]


@pytest.mark.parametrize("datatype", DATATYPES)
def test_arrays_are_aligned_and_writable(serve, form: str, datatype: str) -> None:
    """Every array that predict() receives is aligned and writable, on every transport."""
    if (form, datatype) == ("grpc typed", "FP16"):
        form = "grpc raw"
    flags = []

    def predict(_: Any, pad: np.ndarray, x: np.ndarray) -> Any:
        flags.append(x.flags.carray)
        x[:] = x[::-1].copy()
        return x

    module = models.model([MetadataTensor("pad", "BYTES", [1]), MetadataTensor("x", datatype, [-1])], [X], predict)
    module.METADATA.outputs[0] = MetadataTensor("x", datatype, [-1])
    values: list = {"BYTES": [b"ab", b""], "BOOL": [False, True]}.get(datatype, [0, 1])
    answer = serve(module).forms[form].infer([("pad", "BYTES", [1], [b"odd"]), ("x", datatype, [2], values)])
    assert answer.outputs["x"] == (datatype, [2], values[::-1])
    assert flags == [True]


@pytest.mark.parametrize(
    ("value", "datatype", "shape", "expected"),
    [
        (np.array([1.5, 1e-300]), "FP32", (-1,), [1.5, 0]),
        (np.array([1, 2]), "INT8", (-1,), [1, 2]),
        (np.array([1, 2], "u1"), "INT64", (-1,), [1, 2]),
        (np.array([np.inf, np.nan]), "FP16", (-1,), [np.inf, np.nan]),
        (np.array([1.0, 2.0], ">f8"), "FP64", (-1,), [1, 2]),
        (np.array([[1, 2], [3, 4]], order="F"), "INT32", (2, 2), [[1, 2], [3, 4]]),
        ([1.0, 2.0], "FP32", (-1,), [1, 2]),
        ([], "INT32", (-1,), []),
        ([], "FP32", (-1, 2), np.empty((0, 2))),
        ([], "BYTES", (-1, -1), np.empty((0, 0))),
        ([[], []], "INT64", (-1, 0), [[], []]),
        ([[2**64 - 1, 1], [2**63, 0]], "UINT64", (-1, 2), [[2**64 - 1, 1], [2**63, 0]]),
        ([2**63 + 1, np.int64(1)], "UINT64", (-1,), [2**63 + 1, 1]),
        ([True, False], "BOOL", (-1,), [True, False]),
        (3.5, "FP32", (), 3.5),
        (["a", "é"], "BYTES", (-1,), ["a", "é"]),
        (np.array(["a", "bc"]), "BYTES", (-1,), ["a", "bc"]),
        (["a", b"\xff"], "BYTES", (-1,), [b"a", b"\xff"]),
        ([b"\xff", b""], "BYTES", (-1,), [b"\xff", b""]),
        ({"y": [1.0]}, "FP32", (1,), [1]),
        (([1.0],), "FP32", (1,), [1]),
    ],
)
def test_converts_results_without_loss(value: Any, datatype: str, shape: tuple[int, ...], expected: Any) -> None:
    """A returned value is converted to an array of the declared datatype if no value is lost."""
    array = call(returning(value, datatype, shape))["y"]
    assert array.dtype == DATATYPES[datatype].dtype
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))


@pytest.mark.parametrize(
    ("value", "datatype", "shape", "text"),
    [
        (
            [1, 2],
            "FP32",
            (-1,),
            'output "y": predict.. returned a result that does not match METADATA: datatype: expected FP32, got int64',
        ),
        ([1.0], "INT32", (-1,), "datatype: expected INT32, got float64"),
        ([True], "INT32", (-1,), "datatype: expected INT32, got bool"),
        ([1], "BOOL", (-1,), "datatype: expected BOOL, got int64"),
        (["a"], "FP32", (-1,), "datatype: expected FP32, got strings"),
        ([1], "BYTES", (-1,), 'output "y": .*data: expected strings or bytes for BYTES, got int'),
        ([300], "UINT8", (-1,), "data: expected UINT8 from 0 to 255, got 300"),
        ([-1], "UINT64", (-1,), "data: expected UINT64 from 0 to 18446744073709551615, got -1"),
        ([2**64 - 1, -1], "UINT64", (-1,), "-1 out of bounds for uint64"),
        ([2**64 - 1, 1.5], "UINT64", (-1,), "datatype: expected UINT64, got float64"),
        ([2**64 - 1, 1], "INT64", (-1,), "expected INT64 from .*, got 18446744073709551615"),
        (
            np.array([2**64 - 1], "u8"),
            "INT64",
            (-1,),
            "expected INT64 from .*, got 18446744073709551615",
        ),
        ([1e39], "FP32", (-1,), "data: expected FP32 of at most .*, got 1e.39"),
        ([[1.0]], "FP32", (-1,), r"shape: expected \[-1\], got \[1,1\]"),
        ([1.0, 2.0], "FP32", (3,), r"shape: expected \[3\], got \[2\]"),
        ([[1.0], [1.0, 2.0]], "FP32", (-1, -1), 'output "y": .*data: not an array: got .*; pad rows to one length'),
        (np.ma.array([1, 2], mask=[0, 1]), "INT64", (-1,), "data: masked elements have no value; use filled.."),
        (np.ma.array([b"a", b"b"], mask=[0, 1]), "BYTES", (-1,), "data: masked elements have no value"),
        ([1.0, None], "FP64", (-1,), "expected FP64, got objects: NoneType, float; a missing number is NaN"),
        (InferenceResponse([ResponseOutput("y", "FP32", data=[1])] * 2), "FP32", (-1,), 'an output twice: "y", "y"'),
        (np.float32, "FP32", (-1,), "expected FP32, got objects: type"),
        (None, "FP32", (-1,), "predict.. returned None"),
        ({}, "FP32", (-1,), 'output "y": predict.. did not return it; it returned none'),
        ({"y": [1.0], "z": 1}, "FP32", (-1,), 'output "z": predict.. returned it, and METADATA does not declare it'),
        ((1.0, 2.0), "FP32", (-1,), "returned 2 value.s. for 1 outputs"),
    ],
)
def test_rejects_results_that_do_not_match_metadata(
    value: Any, datatype: str, shape: tuple[int, ...], text: str
) -> None:
    """A returned value of another kind, range, rank or size than METADATA declares is an error of the model."""
    with pytest.raises(ModelError, match=text):
        call(returning(value, datatype, shape))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(1), 1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (2**64 - 1, 2**64 - 1),
        ([1], None),
        (None, None),
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
    answers = [InferenceResponse([output]), InferenceResponse([plain], parameters={"p": value})]
    for answer in answers:
        got = serve(returning(answer)).forms[form].infer([])
        if expected is None:
            assert got.kind == "INTERNAL"
            assert 'parameters: "p": expected a string, a finite number of 64 bits or a boolean' in got.text
        else:
            assert got.kind == "ok"
            assert got.parameters == answer.parameters


def test_binary_data_size_comes_from_the_transport(serve, form: str) -> None:
    """B6: a binary_data_size in the parameters of a returned output does not affect the response."""
    output = ResponseOutput("y", "FP32", data=[1], parameters={"binary_data_size": 4, "p": 1})
    got = serve(returning(InferenceResponse([output]))).forms[form].infer([])
    assert got.outputs == {"y": ("FP32", [1], [1])}


def test_accepts_lists_of_numpy_strings(serve, form: str) -> None:
    """B5, G1: a returned list of NumPy strings is sent as text on every transport."""
    labels = np.array(["setosa", "virginicaé"])
    for content_type in (None, "str"):
        module = models.model([], [MetadataTensor("y", "BYTES", [-1], content_type)], lambda _: [labels[1], labels[0]])
        answer = serve(module).forms[form].infer([])
        assert answer.outputs["y"] == ("BYTES", [2], ["virginicaé".encode(), b"setosa"])


@pytest.mark.parametrize(
    ("content_type", "value"),
    [
        ("datetime", np.array([["2024-01-01", "2024-01-02"]], "M8[s]")),
        ("base64", np.array([[b"a", b"b"]], object)),
        ("pd_json", np.array([[1, 2]], object)),
    ],
)
def test_content_type_keeps_the_shape_of_arrays(content_type: str, value: np.ndarray) -> None:
    """R15: an array of another rank than declared is an error of the model, even if the output has a content type."""
    for shape in ([-1, 2], [-1]):
        module = models.model([], [MetadataTensor("y", "BYTES", shape, content_type)], lambda _: value)
        if shape == [-1]:
            with pytest.raises(ModelError, match=r"shape: expected \[-1\], got \[1,2\]"):
                call(module)
        else:
            assert call(module)["y"].shape == (1, 2)


def test_pd_json_treats_a_dict_as_one_element() -> None:
    """C7: a bare dict in a pd_json output counts as a list of one element."""
    module = models.model([], [MetadataTensor("y", "BYTES", [-1], "pd_json")], lambda _: {"y": {"a": 1}})
    assert call(module)["y"].tolist() == [b'{"a":1}']


def test_a_list_of_dicts_is_one_output() -> None:
    """A returned list of dicts is the value of a single pd_json output."""
    rows = [{"a": 1, "b": 2}]
    objects = models.model([], [MetadataTensor("a", "BYTES", [-1], "pd_json")], lambda _: rows)
    assert [*map(json.loads, call(objects)["a"])] == rows


def test_exception_is_returned_and_logged(serve, form: str, caplog: pytest.LogCaptureFixture) -> None:
    """R19, G1: an exception in predict() returns 500 or INTERNAL with its class and message, and is logged."""
    service = serve(models.failing())
    with caplog.at_level(logging.ERROR):
        answer = service.forms[form].infer([("x", "BYTES", [1], [b"this"])])
    assert (answer.kind, answer.text) == ("INTERNAL", "ValueError: cannot work with this")
    assert "Traceback" in caplog.text
    assert "Traceback" not in answer.text


def test_invalid_input_from_predict(serve, form: str) -> None:
    """InvalidInput from predict() returns 400 or INVALID_ARGUMENT with its message."""
    answer = serve(models.failing()).forms[form].infer([("x", "BYTES", [1], [b"invalid"])])
    assert (answer.kind, answer.text) == ("INVALID_ARGUMENT", "x is not to my liking")


def test_long_error_messages_are_truncated(serve, form: str) -> None:
    """An error message is truncated to fit a gRPC header, and its non-ASCII characters are kept."""
    answer = serve(models.failing()).forms[form].infer([("x", "BYTES", [1], ["🌷" * 5000])])
    assert answer.kind == "INTERNAL"
    assert answer.text.startswith("ValueError: cannot work with 🌷")
    assert len(answer.text) == 500


def test_environment_overrides_name_and_version(serve, form: str) -> None:
    """MODEL_NAME and MODEL_VERSION override METADATA, and are used if the request names no version (R3)."""
    service = serve(models.two_by_two(), model_name="other", model_version="v10")
    sent = [("a", "FP32", [0, 2], [])]
    assert service.forms[form].infer(sent).text == 'unknown model: expected "other", got "test"'
    answer = service.forms[form].infer(sent, model="other")
    assert (answer.model_name, answer.model_version) == ("other", "v10")
    assert service.forms[form].infer(sent, model="other", version="v10").kind == "ok"
    assert service.forms[form].infer(sent, model="other", version="v1").kind == "NOT_FOUND"


def test_request_can_be_forwarded_as_json(serve) -> None:
    """predict() can forward a request with binary data to another server as JSON."""
    sent_on = []

    def predict(_: Any, everything: InferenceRequest) -> Any:
        sent_on.append(everything.to_dict())
        return everything.inputs[0].data

    service = serve(models.model([X], [X], predict))
    service.forms["rest binary"].infer([("x", "FP32", [2], [1, 2])])
    assert sent_on[0]["inputs"] == [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]
    assert service.client.post("/v2/models/test/infer", json=sent_on[0]).status_code == 200


class Warmed:
    """A model that records the inputs of each call before it is ready."""

    def __init__(self, *inputs: MetadataTensor, **members: Any):
        self.seen: list[Any] = []
        self.module = models.model(list(inputs), [MetadataTensor("y", "FP32", [-1])], self.predict)
        del self.module.warm_up
        vars(self.module).update(members)

    def predict(self, _: Any, request: InferenceRequest) -> np.ndarray:
        self.seen.append({each.name: each.data for each in request.inputs})
        return np.zeros(1, "f4")


def test_warm_up_with_ones(serve) -> None:
    """Without warm_up(), predict() is called once with ones of the smallest valid shape."""
    model = Warmed(MetadataTensor("a", "FP32", [-1, 3]), MetadataTensor("b", "BOOL", [2]))
    assert serve(model.module).plane.is_ready
    (seen,) = model.seen
    assert (seen["a"].dtype, seen["a"].tolist(), seen["b"].tolist()) == (np.float32, [[1, 1, 1]], [True, True])


def test_no_warm_up_call_for_bytes(serve) -> None:
    """Without EXAMPLE, predict() is not called for a BYTES input, because valid text is not known."""
    model = Warmed(MetadataTensor("a", "BYTES", [-1]))
    assert serve(model.module).plane.is_ready
    assert not model.seen


def test_warm_up_with_example(serve) -> None:
    """EXAMPLE is used for the warm-up call and for the request that is printed at startup."""
    inputs = [MetadataTensor("a", "FP32", [-1, 2]), MetadataTensor("b", "BYTES", [-1], content_type="str")]
    model = Warmed(*inputs, EXAMPLE={"b": ["\u00e4"], "a": [[1, 2.1]]})
    service = serve(model.module)
    (seen,) = model.seen
    assert (seen["a"].dtype, seen["a"].tolist(), seen["b"].tolist()) == (np.float32, [[1, np.float32(2.1)]], ["\u00e4"])
    body = service.plane.example()
    assert body["inputs"] == [
        {"name": "a", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.1]},
        {"name": "b", "shape": [1], "datatype": "BYTES", "data": ["\u00e4"]},
    ]
    assert service.client.post("/v2/models/test/infer", json=body).status_code == 200


def test_example_with_missing_number(serve) -> None:
    """None in a float input of EXAMPLE becomes NaN, and null in the printed request."""
    model = Warmed(MetadataTensor("a", "FP32", [-1]), EXAMPLE={"a": [1.5, None]})
    service = serve(model.module)
    np.testing.assert_array_equal(model.seen[0]["a"], np.array([1.5, np.nan], np.float32))
    assert service.plane.example()["inputs"][0]["data"] == [1.5, None]


def test_example_without_json_form(serve) -> None:
    """An EXAMPLE without a JSON form is used for the warm-up, and the printed request has generated values."""
    model = Warmed(MetadataTensor("a", "BYTES", [-1]), EXAMPLE={"a": [b"\xff"]})
    service = serve(model.module)
    assert model.seen[0]["a"].tolist() == [b"\xff"]
    assert service.plane.example()["inputs"][0]["data"] == ["text"]


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ({"a": [[1, 2, 3]]}, r'input "a": shape: expected \[-1,2\], got \[1,3\]'),
        ({"a": "text"}, 'EXAMPLE: input "a": '),
        ({"c": [1]}, 'METADATA has no input "c"'),
        ({}, 'input "a": missing'),
        ([1], "EXAMPLE: "),
    ],
)
def test_rejects_examples_that_do_not_match_metadata(serve, example: Any, told: str) -> None:
    """An EXAMPLE that does not match METADATA fails at startup, and the error names the input."""
    with pytest.raises(ConfigurationError, match=told):
        serve(Warmed(MetadataTensor("a", "FP32", [-1, 2]), EXAMPLE=example).module)


def test_rejects_examples_with_datetime_objects(serve) -> None:
    """EXAMPLE must contain datetimes as ISO 8601 text, as a request does."""
    model = Warmed(MetadataTensor("a", "BYTES", [-1], "datetime"), EXAMPLE={"a": [datetime(2024, 5, 1)]})
    with pytest.raises(ConfigurationError, match='input "a": .* got datetime; .* ISO text'):
        serve(model.module)


def test_import_error_without_a_module_name() -> None:
    """The error message suggests installing the package, even if the exception does not name the module."""
    assert reason(ModuleNotFoundError("no GPU here")).startswith(
        "ModuleNotFoundError: no GPU here; install its package"
    )


def test_custom_warm_up_replaces_ones(serve) -> None:
    """warm_up() is called with the result of load() instead of a call with ones."""
    given: list[Any] = []
    model = Warmed(MetadataTensor("a", "FP32", [1]), load=lambda: "loaded", warm_up=given.append)
    assert serve(model.module).plane.is_ready
    assert (given, model.seen) == (["loaded"], [])


def test_failed_warm_up_with_ones_is_logged(serve, caplog: pytest.LogCaptureFixture) -> None:
    """If the warm-up call with ones fails, a log message reports the error, and the service becomes ready."""

    def predict(_: Any, a: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("a is one")

    model = Warmed(MetadataTensor("a", "FP32", [1]), predict=predict)
    assert serve(model.module).plane.is_ready
    assert "Warm-up call with ones failed" in caplog.text
    assert "ZeroDivisionError: a is one" in caplog.text


def test_missing_example_for_text_is_logged(serve, caplog: pytest.LogCaptureFixture) -> None:
    """Without EXAMPLE, a model with a text input is not called before it is ready, and a warning is logged."""
    model = Warmed(MetadataTensor("a", "BYTES", [1]))
    assert serve(model.module).plane.is_ready
    assert model.seen == []
    assert "predict() has not been tried. Define EXAMPLE" in caplog.text


@pytest.mark.parametrize("members", [{}, {"EXAMPLE": {"a": [1]}}], ids=["ones", "EXAMPLE"])
def test_warm_up_result_must_match_metadata(serve, members: dict[str, Any]) -> None:
    """A warm-up result that does not match METADATA fails at startup, because every request would fail."""
    model = Warmed(MetadataTensor("a", "FP32", [1]), predict=lambda _, a: {"z": a}, **members)
    with pytest.raises(ModelError, match='output "z"'):
        serve(model.module)


def test_failed_example_stops_the_startup(serve) -> None:
    """An exception in predict() for EXAMPLE fails at startup, in contrast to a call with ones."""

    def predict(_: Any, a: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("a is one")

    with pytest.raises(ZeroDivisionError, match="a is one"):
        serve(Warmed(MetadataTensor("a", "FP32", [1]), predict=predict, EXAMPLE={"a": [1]}).module)


def test_failed_warm_up_stops_the_startup(serve) -> None:
    """An exception in warm_up() fails at startup, as in load()."""

    def warm_up(model: Any) -> None:
        raise RuntimeError("too cold")

    with pytest.raises(RuntimeError, match="too cold"):
        serve(Warmed(MetadataTensor("a", "FP32", [1]), warm_up=warm_up).module)


class Panic(BaseException):
    """An exception that is not an Exception, as libraries written in Rust raise."""


@pytest.mark.parametrize("size", [1, 8], ids=["alone", "batched"])
@pytest.mark.parametrize("kind", [Panic, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_base_exceptions_are_model_errors(serve, kind: type[BaseException], size: int) -> None:
    """A BaseException from predict() is an error of the model and is returned to the client."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        raise kind("oh")

    tensors = [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])]
    service = serve(models.model(*tensors, predict), max_batch_size=size)
    for client in map(service.forms.__getitem__, FORMS):
        answer = client.infer([("x", "FP32", [1], [1])])
        assert (answer.kind, answer.text) == ("INTERNAL", f"{kind.__name__}: oh")
