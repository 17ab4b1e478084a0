"""A model that creates its own span: gunicorn 'tests.template.traced:spanning()'."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from flask import Flask
from opentelemetry import trace

from app import create_app
from app.protocol.types import MetadataTensor
from tests.service import models

SECONDS = 0.02


def spanning() -> Flask:
    """Return a model that echoes a BYTES tensor. "fail" raises an exception, and "slow" takes 20 ms."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        with trace.get_tracer("model").start_as_current_span("own"):
            if x[0] == b"slow":
                time.sleep(SECONDS)
        if x[0] == b"fail":
            raise ValueError("cannot work")
        return x

    inputs, outputs = [MetadataTensor("x", "BYTES", [-1])], [MetadataTensor("y", "BYTES", [-1])]
    return create_app(module=models.model(inputs, outputs, predict))
