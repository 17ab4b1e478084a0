"""This repository's service: gunicorn 'benchmarks.servers.ours:linear()', or echo()."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from flask import Flask

from app import create_app
from app.types import MetadataTensor, ModelMetadata
from benchmarks.servers import models


def linear() -> Flask:
    def predict(model: None, x: np.ndarray) -> np.ndarray:
        return models.linear(x)

    return create("linear", [-1, 4], [-1, 3], predict)


def echo() -> Flask:
    def predict(model: None, x: np.ndarray) -> np.ndarray:
        return x

    return create("echo", [-1], [-1], predict)


def create(name: str, taken: list[int], given: list[int], predict) -> Flask:
    tensors = [MetadataTensor("x", "FP32", taken)], [MetadataTensor("y", "FP32", given)]
    metadata = ModelMetadata(name, "1", "numpy", *tensors)
    return create_app(module=SimpleNamespace(__name__=name, METADATA=metadata, load=lambda: None, predict=predict))
