"""The adapter of predict(): its signature, arguments, return values, EXAMPLE and warm-up."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from app.inference.predict_adapter import ModelAdapter
from app.protocol.datatypes import DATATYPES
from app.protocol.errors import ModelError
from app.protocol.types import InferenceRequest, MetadataTensor, RequestInput
from oip_conformance.wires import CONTENTS
from tests.kit import models
from tests.service.inference.predict_adapter_calls import X, call


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
        ModelError, match="returned a list .one value. for 2 outputs. Return a tuple, or a dict"
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
    if form == "grpc typed" and datatype not in CONTENTS:
        form = "grpc raw"
    flags = []

    def predict(_: Any, pad: np.ndarray, x: np.ndarray) -> Any:
        flags.append(x.flags.carray)
        x[:] = x[::-1].copy()
        return x

    module = models.model(
        [MetadataTensor("pad", "BYTES", [1]), MetadataTensor("x", datatype, [-1])], [X], predict
    )
    module.METADATA.outputs[0] = MetadataTensor("x", datatype, [-1])
    values: list = {"BYTES": [b"ab", b""], "BOOL": [False, True]}.get(datatype, [0, 1])
    response = (
        serve(module)
        .forms[form]
        .infer([("pad", "BYTES", [1], [b"odd"]), ("x", datatype, [2], values)])
    )
    assert response.outputs["x"] == (datatype, [2], values[::-1])
    assert flags == [True]


def test_exception_is_returned_and_logged(
    serve, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R19, G1: an exception in predict() returns 500 or INTERNAL with its class and message, and is logged."""
    service = serve(models.failing())
    with caplog.at_level(logging.ERROR):
        response = service.forms[form].infer([("x", "BYTES", [1], [b"this"])])
    assert (response.kind, response.text) == ("INTERNAL", "ValueError: cannot work with this")
    assert "Traceback" in caplog.text
    assert "Traceback" not in response.text


def test_invalid_input_from_predict(serve, form: str) -> None:
    """InvalidInput from predict() returns 400 or INVALID_ARGUMENT with its message."""
    response = serve(models.failing()).forms[form].infer([("x", "BYTES", [1], [b"invalid"])])
    assert (response.kind, response.text) == (
        "INVALID_ARGUMENT",
        "Invalid x. Expected another text, got invalid.",
    )


def test_long_error_messages_are_truncated(serve, form: str) -> None:
    """An error message is truncated to fit a gRPC header, and its non-ASCII characters are kept."""
    response = serve(models.failing()).forms[form].infer([("x", "BYTES", [1], ["🌷" * 5000])])
    assert response.kind == "INTERNAL"
    assert response.text.startswith("ValueError: cannot work with 🌷")
    assert len(response.text) == 500


def test_environment_overrides_name_and_version(serve, form: str) -> None:
    """MODEL_NAME and MODEL_VERSION override METADATA, and are used if the request names no version (R3)."""
    service = serve(models.two_by_two(), model_name="other", model_version="v10")
    sent = [("a", "FP32", [0, 2], [])]
    assert service.forms[form].infer(sent).text == 'Model not found. Expected "other", got "test".'
    response = service.forms[form].infer(sent, model="other")
    assert (response.model_name, response.model_version) == ("other", "v10")
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
