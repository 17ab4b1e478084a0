"""A service that returns the GPU of its worker: gunicorn 'tests.service.library_apps:visible_device()'."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.types import MetadataTensor
from tests.kit import models


def visible_device() -> Flask:
    """Return a service that returns the worker's PID, and CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER at the import.

    load() waits while FOLDER has a file with the name of the device.
    """
    device, order = (os.environ[f"CUDA_{name}"] for name in ("VISIBLE_DEVICES", "DEVICE_ORDER"))

    def load() -> None:
        while (Path(os.environ["FOLDER"]) / device).exists():
            time.sleep(0.01)

    def predict(_: Any, x: np.ndarray) -> dict[str, Any]:
        return {
            "pid": np.full(len(x), os.getpid()),
            "device": [device] * len(x),
            "order": [order] * len(x),
        }

    outputs = [
        MetadataTensor(name, "BYTES", [-1], content_type="str") for name in ("device", "order")
    ]
    outputs.append(MetadataTensor("pid", "INT64", [-1]))
    return create_app(
        module=models.model([MetadataTensor("x", "FP32", [-1])], outputs, predict, load)
    )
