"""The model that is attacked: gunicorn 'dev.chaos.abuse.models:echo()'."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.metadata import MetadataTensor
from tests.kit import models

NOTHING = np.empty(0)
NO_ROWS = np.empty((0, 4))


def echo() -> Flask:
    """Return a model that returns `x`, FP64 [1], as `y`.

    It ignores its other inputs, which are optional and of any size.
    """
    zero = np.zeros(1)

    def predict(
        _: Any,
        x: np.ndarray = zero,
        numbers: np.ndarray = NOTHING,
        integers: np.ndarray = NOTHING,
        rows: np.ndarray = NO_ROWS,
        texts: np.ndarray = NOTHING,
    ) -> np.ndarray:
        return x

    inputs = [
        MetadataTensor("x", "FP64", [1]),
        MetadataTensor("numbers", "FP64", [-1]),
        MetadataTensor("integers", "INT64", [-1]),
        MetadataTensor("rows", "FP64", [-1, 4]),
        MetadataTensor("texts", "BYTES", [-1]),
    ]
    outputs = [MetadataTensor("y", "FP64", [1])]
    return create_app(module=models.model(inputs, outputs, predict))
