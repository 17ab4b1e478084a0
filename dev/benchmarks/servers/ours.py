"""The models in this repository's service, such as gunicorn 'dev.benchmarks.servers.ours:linear()'."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.types import MetadataTensor, ModelMetadata
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


def sums() -> Flask:
    def predict(model: None, x: np.ndarray) -> np.ndarray:
        return models.sums(x)

    return create("sums", [-1, 10], [-1], predict)


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
    return create_app(
        module=SimpleNamespace(__name__=name, METADATA=metadata, load=lambda: None, predict=predict)
    )
