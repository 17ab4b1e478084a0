"""The adapter of predict(): arguments, exceptions, and the name and version of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.protocol.datatypes import DATATYPES
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import CONTENTS_FIELDS, FORMS
from tests.kit import models

X = MetadataTensor("x", "FP32", [-1])


@pytest.mark.parametrize("datatype", DATATYPES)
def test_arrays_are_aligned_and_writable(serve, form: str, datatype: str) -> None:
    """C5, R23: every array that predict() receives has the dtype of its datatype, and is aligned and writable."""
    if form == "grpc typed" and datatype not in CONTENTS_FIELDS:
        form = "grpc raw"
    received = []

    def predict(_: Any, pad: np.ndarray, x: np.ndarray) -> Any:
        received.append((x.dtype, x.flags.carray))
        x[:] = x[::-1].copy()
        return x

    tensor = MetadataTensor("x", datatype, [-1])
    module = models.model([MetadataTensor("pad", "BYTES", [1]), tensor], [tensor], predict)
    values: list = {"BYTES": [b"ab", b""], "BOOL": [False, True]}.get(datatype, [0, 1])
    response = (
        serve(module)
        .forms[form]
        .infer([("pad", "BYTES", [1], [b"odd"]), ("x", datatype, [2], values)])
    )
    assert response.outputs["x"] == (datatype, [2], values[::-1])
    assert received == [(DATATYPES[datatype].dtype, True)]


class RustPanic(BaseException):
    """An exception that is not an Exception, as libraries written in Rust raise."""


@pytest.mark.parametrize("size", [1, 8], ids=["alone", "batched"])
@pytest.mark.parametrize(
    "kind",
    [
        *(ValueError, RecursionError, MemoryError, StopIteration, SystemError),
        *(RustPanic, KeyboardInterrupt, SystemExit, GeneratorExit),
    ],
)
def test_exceptions_are_model_errors(
    serve, caplog: pytest.LogCaptureFixture, kind: type[BaseException], size: int
) -> None:
    """R19, G1: any exception from predict() returns 500 or INTERNAL with its class, and the log has the traceback."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        raise kind("oh \ud800\n")

    service = serve(models.model([X], [X], predict), max_batch_size=size)
    for count, form in enumerate(FORMS, 1):
        response = service.forms[form].infer([("x", "FP32", [1], [1])])
        assert response.kind == "INTERNAL"
        assert response.text.startswith(f"{kind.__name__}: oh ")
        assert "Traceback" not in response.text
        assert caplog.text.count("Traceback") == count


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
    assert service.forms[form].infer(sent, model="other", version="v10").is_success
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
