"""The warm-up call at startup."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from app.api import ConfigurationError
from app.inference import model_runner
from app.inference.startup_errors import describe_error
from app.protocol.errors import ModelError
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from tests.kit import models
from tests.kit.processes import wait_for


class RecordingModel:
    """A model that records the inputs of each call before it is ready."""

    def __init__(self, *inputs: MetadataTensor, **members: Any):
        self.seen: list[Any] = []
        self.module = models.model(list(inputs), [MetadataTensor("y", "FP32", [-1])], self.predict)
        del self.module.warm_up
        vars(self.module).update(members)

    def predict(self, _: Any, request: InferenceRequest) -> np.ndarray:
        self.seen.append({tensor.name: tensor.data for tensor in request.inputs})
        return np.zeros(1, "f4")


def test_warm_up_with_ones(serve) -> None:
    """Without warm_up(), predict() is called once with ones of the smallest valid shape."""
    model = RecordingModel(MetadataTensor("a", "FP32", [-1, 3]), MetadataTensor("b", "BOOL", [2]))
    assert serve(model.module).core.is_ready
    (seen,) = model.seen
    assert (seen["a"].dtype, seen["a"].tolist(), seen["b"].tolist()) == (
        np.float32,
        [[1, 1, 1]],
        [True, True],
    )


def test_no_warm_up_call_for_bytes(serve) -> None:
    """Without EXAMPLE, predict() is not called for a BYTES input, because valid text is not known."""
    model = RecordingModel(MetadataTensor("a", "BYTES", [-1]))
    assert serve(model.module).core.is_ready
    assert not model.seen


def test_warm_up_with_example(serve) -> None:
    """EXAMPLE is used for the warm-up call and for the request that is printed at startup."""
    inputs = [
        MetadataTensor("a", "FP32", [-1, 2]),
        MetadataTensor("b", "BYTES", [-1], content_type="str"),
    ]
    model = RecordingModel(*inputs, EXAMPLE={"b": ["\u00e4"], "a": [[1, 2.1]]})
    service = serve(model.module)
    (seen,) = model.seen
    assert (seen["a"].dtype, seen["a"].tolist(), seen["b"].tolist()) == (
        np.float32,
        [[1, np.float32(2.1)]],
        ["\u00e4"],
    )
    body = service.core.info.example()
    assert body["inputs"] == [
        {"name": "a", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.1]},
        {"name": "b", "shape": [1], "datatype": "BYTES", "data": ["\u00e4"]},
    ]
    assert service.client.post("/v2/models/test/infer", json=body).status_code == 200


def test_example_with_missing_number(serve) -> None:
    """None in a float input of EXAMPLE becomes NaN, and null in the printed request."""
    model = RecordingModel(MetadataTensor("a", "FP32", [-1]), EXAMPLE={"a": [1.5, None]})
    service = serve(model.module)
    np.testing.assert_array_equal(model.seen[0]["a"], np.array([1.5, np.nan], np.float32))
    assert service.core.info.example()["inputs"][0]["data"] == [1.5, None]


def test_example_without_json_form(serve) -> None:
    """An EXAMPLE without a JSON form is used for the warm-up, and the printed request has generated values."""
    model = RecordingModel(MetadataTensor("a", "BYTES", [-1]), EXAMPLE={"a": [b"\xff"]})
    service = serve(model.module)
    assert model.seen[0]["a"].tolist() == [b"\xff"]
    assert service.core.info.example()["inputs"][0]["data"] == ["text"]


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"a": [[1, 2, 3]]}, r'EXAMPLE: input "a": invalid shape. Expected \[-1,2\], got \[1,3\]'),
        ({"a": "text"}, 'EXAMPLE: input "a": '),
        ({"c": [1]}, 'EXAMPLE: unknown input. Expected "a", got "c"'),
        ({}, 'EXAMPLE: input "a": missing'),
        ([1], "Invalid EXAMPLE. Expected a dict"),
    ],
)
def test_rejects_examples_that_do_not_match_metadata(serve, example: Any, message: str) -> None:
    """An EXAMPLE that does not match METADATA fails at startup, and the error names the input."""
    with pytest.raises(ConfigurationError, match=message):
        serve(RecordingModel(MetadataTensor("a", "FP32", [-1, 2]), EXAMPLE=example).module)


def test_rejects_examples_with_datetime_objects(serve) -> None:
    """EXAMPLE must contain datetimes as ISO 8601 text, as a request does."""
    model = RecordingModel(
        MetadataTensor("a", "BYTES", [-1], "datetime"), EXAMPLE={"a": [datetime(2024, 5, 1)]}
    )
    with pytest.raises(ConfigurationError, match='EXAMPLE: input "a": .* got datetime.* ISO text'):
        serve(model.module)


def test_import_error_without_a_module_name() -> None:
    """If predict.py has not run, the error message suggests the Python of the service, in which all packages are."""
    description = describe_error(ModuleNotFoundError("no GPU here"))
    assert description == "ModuleNotFoundError: no GPU here. Use .venv/bin/python, after make serve"


def test_custom_warm_up_replaces_ones(serve) -> None:
    """warm_up() is called with the result of load() instead of a call with ones."""
    given: list[Any] = []
    model = RecordingModel(
        MetadataTensor("a", "FP32", [1]), load=lambda: "loaded", warm_up=given.append
    )
    assert serve(model.module).core.is_ready
    assert (given, model.seen) == (["loaded"], [])


def test_failed_warm_up_with_ones_is_logged(serve, caplog: pytest.LogCaptureFixture) -> None:
    """If the warm-up call with ones fails, a log message reports the error, and the service becomes ready."""

    def predict(_: Any, a: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("a is one")

    model = RecordingModel(MetadataTensor("a", "FP32", [1]), predict=predict)
    assert serve(model.module).core.is_ready
    assert "Warm-up call with ones failed" in caplog.text
    assert "ZeroDivisionError: a is one" in caplog.text


def test_missing_example_for_text_is_logged(serve, caplog: pytest.LogCaptureFixture) -> None:
    """Without EXAMPLE, a model with a text input is not called before it is ready, and a warning is logged."""
    model = RecordingModel(MetadataTensor("a", "BYTES", [1]))
    assert serve(model.module).core.is_ready
    assert model.seen == []
    assert "Warm-up skipped, because an input is text. Define EXAMPLE" in caplog.text


@pytest.mark.parametrize("members", [{}, {"EXAMPLE": {"a": [1]}}], ids=["ones", "EXAMPLE"])
def test_warm_up_result_must_match_metadata(serve, members: dict[str, Any]) -> None:
    """A warm-up result that does not match METADATA fails at startup, because every request would fail."""
    model = RecordingModel(
        MetadataTensor("a", "FP32", [1]), predict=lambda _, a: {"z": a}, **members
    )
    with pytest.raises(ModelError, match='Output "z"'):
        serve(model.module)


def test_failed_example_stops_the_startup(serve) -> None:
    """An exception in predict() for EXAMPLE fails at startup, in contrast to a call with ones."""

    def predict(_: Any, a: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("a is one")

    with pytest.raises(ZeroDivisionError, match="a is one"):
        serve(
            RecordingModel(
                MetadataTensor("a", "FP32", [1]), predict=predict, EXAMPLE={"a": [1]}
            ).module
        )


def test_failed_warm_up_stops_the_startup(serve) -> None:
    """An exception in warm_up() fails at startup, as in load()."""

    def warm_up(model: Any) -> None:
        raise RuntimeError("too cold")

    with pytest.raises(RuntimeError, match="too cold"):
        serve(RecordingModel(MetadataTensor("a", "FP32", [1]), warm_up=warm_up).module)


@pytest.mark.parametrize("fails", [False, True])
def test_progress_of_load_is_logged(
    serve, caplog: pytest.LogCaptureFixture, monkeypatch, fails: bool
) -> None:
    """During load(), a thread logs the time regularly. The thread has ended when load() has returned or failed."""
    caplog.set_level(logging.INFO, "app.inference.model_runner")
    monkeypatch.setattr(model_runner, "LOG_SECONDS", 0.01)

    def load() -> None:
        wait_for(lambda: "Still loading the model after " in caplog.text)
        if fails:
            raise RuntimeError("too heavy")

    model = RecordingModel(MetadataTensor("a", "FP32", [1]), load=load)
    with pytest.raises(RuntimeError) if fails else nullcontext():
        serve(model.module)
    assert not any(isinstance(thread, model_runner.Repeater) for thread in threading.enumerate())
    first, *_, last = (record.getMessage() for record in caplog.records)
    assert first == "Loading the model"
    assert last.startswith("Still loading" if fails else "Loaded the model in ")
