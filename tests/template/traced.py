"""A model that creates its own span: gunicorn 'tests.template.traced:spanning()'."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from flask import Flask
from opentelemetry import trace

from app import create_app
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import RequestInput
from tests.kit import models

SECONDS = 0.02


def spanning() -> Flask:
    """Return a model that echoes a BYTES tensor. "fail" raises an exception, and "slow" takes 20 ms.

    PUT /own/<word> sends a word to the model.
    """

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        with trace.get_tracer("model").start_as_current_span("own"):
            if x[0] == b"slow":
                time.sleep(SECONDS)
        if x[0] == b"fail":
            raise ValueError("cannot work")
        return x

    inputs, outputs = [MetadataTensor("x", "BYTES", [-1])], [MetadataTensor("y", "BYTES", [-1])]
    app = create_app(module=models.model(inputs, outputs, predict))
    infer = app.extensions["service"].infer

    @app.put("/own/<word>")
    def own(word: str) -> Any:
        return infer(InferenceRequest([RequestInput("x", "BYTES", data=[word])])).to_dict()

    return app
