"""A service whose predict() changes its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.metadata import MetadataTensor
from tests.kit import models


def predict(_: Any, x: np.ndarray, text: np.ndarray | None = None) -> dict[str, Any]:
    if x.min() < 0:
        raise ValueError(f"negative: {x.min()}")
    x *= 2
    echo = np.full(len(x), b"none", object) if text is None else text.copy()
    if text is not None:
        text[:] = b"changed"
    return {"y": x, "text": echo}


def app() -> Flask:
    """Return a service that doubles x FP32 [-1], and echoes the optional BYTES [-1] `text`. It rejects x < 0."""
    text = MetadataTensor("text", "BYTES", [-1])
    tensors = [MetadataTensor("x", "FP32", [-1]), text], [MetadataTensor("y", "FP32", [-1]), text]
    return create_app(module=models.model(*tensors, predict))
