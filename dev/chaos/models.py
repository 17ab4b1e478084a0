"""The model for the chaos tests: gunicorn 'dev.chaos.models:echo()'."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.metadata import MetadataTensor
from tests.kit import models


def echo() -> Flask:
    """Return a model that returns `x`, FP64 [1], as `y` after CHAOS_SECONDS. `x` is the deadline of the request.

    If CHAOS_NOTES is set, each request appends the seconds from its deadline to its start to that
    file.
    """
    seconds, notes = float(os.environ.get("CHAOS_SECONDS", 0)), os.environ.get("CHAOS_NOTES")
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if notes else None

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if file is not None:
            os.write(file, b"%f\n" % (time.monotonic() - x[0]))
        if seconds:
            time.sleep(seconds)
        return x

    tensors = [MetadataTensor(name, "FP64", [1]) for name in "xy"]
    return create_app(module=models.model(tensors[:1], tensors[1:], predict))
