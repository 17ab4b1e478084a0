"""A service with calls that never return: gunicorn 'tests.service.stuck_app:stuck()'."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask

from app.protocol.types import MetadataTensor
from tests.kit import models
from tests.service.apps import hold_route

STUCK, HOLDING_GIL = 7.0, 8.0


def stuck() -> Flask:
    """Return hold_route() with an FP32 echo. Two values of `x` are calls that never return.

    predict() adds a line with the number of rows to FOLDER/calls. load() creates FOLDER/load.begun, and waits while
    FOLDER/wait exists.
    """
    place = Path(os.environ["FOLDER"])

    def load() -> None:
        (place / "load.begun").touch()
        while (place / "wait").exists():
            time.sleep(0.01)

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        with (place / "calls").open("a") as file:
            file.write(f"{len(x)}\n")
        if STUCK in x:
            threading.Event().wait()
        if HOLDING_GIL in x:
            ctypes.PyDLL(None).sleep(3600)
        return x

    tensors = [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])]
    return hold_route(models.model(*tensors, predict, load))
