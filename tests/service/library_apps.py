"""Services whose libraries use GPUs or start threads, for example 'tests.service.library_apps:visible_device()'."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.types import MetadataTensor
from tests.kit import models
from tests.service.apps import waiting


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


def torch_model() -> Flask:
    """Return a service whose load() imports torch."""

    def load() -> None:
        import torch  # noqa: F401

    return create_app(module=models.model([], [], lambda _: {}, load))


def native_thread() -> Flask:
    """Return a service whose load() starts a thread of a C library, which the library's destructor waits for."""

    def load() -> None:
        library, thread = ctypes.CDLL(None), ctypes.c_ulong()
        library.pthread_create(ctypes.byref(thread), None, library.sleep, ctypes.c_void_p(3600))
        library.pthread_setname_np(thread, b"telemetry")
        library.__cxa_atexit(library.pthread_join, thread, None)

    return waiting(load)


def python_thread() -> Flask:
    """Return a service whose load() starts a thread of Python that does not end, and the threads of BLAS."""

    def load() -> None:
        threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
        np.ones((500, 500)) @ np.ones((500, 500))

    return waiting(load)
