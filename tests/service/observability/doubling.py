"""A service whose predict() changes its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from tests.kit import models


def predict(_: Any, x: np.ndarray, text: np.ndarray | None = None) -> dict[str, Any]:
    if x.min() < 0:
        raise ValueError(f"negative: {x.min()}")
    x *= 2
    if text is None:
        return {"y": x, "text": np.full(len(x), b"none", object)}

    echo = text.copy()
    text[:] = b"changed"
    return {"y": x, "text": echo}


def app() -> Flask:
    """Return a service that doubles x FP32 [-1], and echoes the optional `text` BYTES [-1].

    It raises an exception if x has a negative element.
    """
    text = models.vector("text", "BYTES")
    inputs = [models.vector("x", "FP32"), text]
    outputs = [models.vector("y", "FP32"), text]
    return create_app(module=models.model(inputs, outputs, predict))
