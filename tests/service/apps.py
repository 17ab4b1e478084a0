"""Services that the tests start by gunicorn: 'tests.service.apps:waiting()'."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.types import MetadataTensor

from . import models

PATIENCE = 60


def waiting() -> Flask:
    """predict() notes that it has begun, in a file FOLDER/NAME.begun, and returns when FOLDER/go is there."""
    inputs = [MetadataTensor("folder", "BYTES", [1]), MetadataTensor("name", "BYTES", [1])]

    def predict(_: Any, folder: np.ndarray, name: np.ndarray) -> np.ndarray:
        place = Path(folder[0].decode())
        (place / f"{name[0].decode()}.begun").touch()
        deadline = time.monotonic() + PATIENCE
        while not (place / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return name

    return create_app(module=models.model(inputs, [MetadataTensor("done", "BYTES", [1])], predict))


def echoing() -> Flask:
    """A BYTES tensor of any length, echoed."""
    return create_app(module=models.echo("BYTES", [-1]))


def disagreeing() -> Flask:
    """predict() takes what METADATA does not declare."""
    return create_app(module=models.model([], [], lambda _, x: x))


def unloadable() -> Flask:
    """load() raises."""

    def load() -> None:
        raise FileNotFoundError("the model file is gone")

    return create_app(module=models.model([], [], lambda _: {}, load))
