"""The models in this repository's service, such as gunicorn 'dev.benchmarks.servers.ours:linear()'."""

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.api import MetadataTensor, ModelMetadata
from dev.benchmarks.servers import models

WAIT_SECONDS = 0.005


def linear() -> Flask:
    def predict(model: None, x: np.ndarray) -> np.ndarray:
        return models.linear(x)

    return create("linear", [-1, 4], [-1, 3], predict)


def echo() -> Flask:
    def predict(model: None, x: np.ndarray) -> np.ndarray:
        return x

    return create("echo", [-1], [-1], predict)


def echo_of(datatype: str) -> Flask:
    """Return an echo of a datatype. Requests can choose another content type than its own."""

    def predict(model: None, x: Any) -> Any:
        return x

    content_type = "str" if datatype == "BYTES" else None
    return create("echo", [-1], [-1], predict, datatype=datatype, content_type=content_type)


def sums() -> Flask:
    def predict(model: None, x: np.ndarray) -> np.ndarray:
        return models.sums(x)

    return create("sums", [-1, 10], [-1], predict)


def frame() -> Flask:
    """Return the model of a DataFrame.

    Only its process imports pandas. The idle memory in the results is that of `linear`.
    """
    import pandas as pd

    # pandas uses pyarrow for text if it is installed, as in this environment. The default project
    # and the environments of the other servers do not contain pyarrow.
    pd.set_option("mode.string_storage", "python")

    def predict(model: None, frame: pd.DataFrame) -> np.ndarray:
        return models.frame_scores(frame)

    inputs = []
    for column, datatype in models.COLUMNS.items():
        content_type = "str" if datatype == "BYTES" else None
        inputs.append(MetadataTensor(column, datatype, [-1, 1], content_type))
    metadata = ModelMetadata("frame", "1", "pandas", inputs, [MetadataTensor("y", "FP64", [-1])])
    return create_from(metadata, predict)


def texts() -> Flask:
    def predict(model: None, x: list[str]) -> list[str]:
        return x

    return create("texts", [-1], [-1], predict, datatype="BYTES", content_type="str")


def waiting() -> Flask:
    """Return the linear model with a delay, such as for a call to another service."""

    def predict(model: None, x: np.ndarray) -> np.ndarray:
        time.sleep(WAIT_SECONDS)
        return models.linear(x)

    return create("linear", [-1, 4], [-1, 3], predict)


def accelerated() -> Flask:
    """Return the linear model on a simulated device: one call at a time, and constant time per call."""
    device = threading.Lock()

    def predict(model: None, x: np.ndarray) -> np.ndarray:
        with device:
            time.sleep(WAIT_SECONDS)
        return models.linear(x)

    return create("linear", [-1, 4], [-1, 3], predict)


def total(count: int) -> Flask:
    """Return a model that sums its `count` inputs, x0, x1 and so on."""

    def predict(model: None, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate(list(inputs.values())).sum(0, keepdims=True)

    return create("total", [1, 4], [1, 4], predict, [f"x{index}" for index in range(count)])


def create(
    name: str,
    taken: list[int],
    given: list[int],
    predict: Callable[..., object],
    inputs: Sequence[str] = ("x",),
    datatype: str = "FP32",
    content_type: str | None = None,
) -> Flask:
    tensors = [MetadataTensor(each, datatype, taken, content_type) for each in inputs]
    metadata = ModelMetadata(
        name, "1", "numpy", tensors, [MetadataTensor("y", datatype, given, content_type)]
    )
    return create_from(metadata, predict)


def create_from(metadata: ModelMetadata, predict: Callable[..., object]) -> Flask:
    """Return the service's application with this model instead of app/predict.py."""
    module = SimpleNamespace(
        __name__=metadata.name, METADATA=metadata, load=lambda: None, predict=predict
    )
    return create_app(module=module)
