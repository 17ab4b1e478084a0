"""A service that records the source lines of its errors.

The command is: gunicorn 'tests.service.error_app:create()'.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from flask import Flask

from app import create_app
from app.api import (
    InferenceResponse,
    InputCodec,
    MetadataTensor,
    ResponseOutput,
    register_input_codec,
)
from app.protocol import errors
from tests.kit import models

# The class of an error, and the file and line that created it.
Site = tuple[str, str, int]
SITES = "ERROR_SITES"  # the environment variable with the file that gets a line per error


def record_sites(record: Callable[[Site], Any]) -> Callable[[], None]:
    """Call `record` for each InferenceError that is created from now on.

    Return a function that ends this.
    """
    original = errors.InferenceError.__init__

    def recording(self: errors.InferenceError, *args: Any, **options: Any) -> None:
        frame = sys._getframe(1)
        # Skip the __init__ of subclasses.
        while frame.f_code.co_filename == errors.__file__ and frame.f_back:
            frame = frame.f_back
        site = (type(self).__name__, frame.f_code.co_filename, frame.f_lineno)
        record(site)
        original(self, *args, **options)

    def end() -> None:
        errors.InferenceError.__init__ = original  # type: ignore[method-assign]

    errors.InferenceError.__init__ = recording  # type: ignore[method-assign]
    return end


def append(site: Site) -> None:
    """Add a line to the file SITES."""
    error_class, path, line = site
    with Path(os.environ[SITES]).open("a") as file:
        file.write(f"{error_class}\t{path}\t{line}\n")


class PickyCodec(InputCodec):
    """A custom codec whose exceptions contain the value."""

    ContentType = "picky"

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> tuple[str, np.ndarray]:
        if payload != FINE:
            raise ValueError(payload)
        return "BYTES", np.array([FINE], object)

    @classmethod
    def decode(cls, tensor: Any) -> Any:
        raise KeyError(tensor.data.tolist())


ABSENT: Any = None
FINE = "fine"
INPUTS = [
    MetadataTensor("must", "FP32", [-1]),
    MetadataTensor("text", "BYTES", [-1], "str"),
    MetadataTensor("octets", "BYTES", [-1]),
    MetadataTensor("moments", "BYTES", [-1], "datetime"),
    MetadataTensor("images", "BYTES", [-1], "base64"),
    MetadataTensor("flag", "BOOL", [-1]),
    MetadataTensor("small", "INT8", [-1]),
    MetadataTensor("big", "INT64", [-1]),
    MetadataTensor("double", "FP64", [-1]),
    MetadataTensor("half", "FP16", [-1]),
    MetadataTensor("action", "BYTES", [-1], "str"),
]
OUTPUTS = [
    MetadataTensor("y", "BYTES", [-1]),
    MetadataTensor("n", "INT8", [-1]),
    MetadataTensor("f", "FP32", [-1]),
    MetadataTensor("p", "BYTES", [-1], "picky"),
]
GOOD = {"y": [b"a"], "n": np.array([1], "i1"), "f": np.array([1], "f4"), "p": FINE}


def response(*outputs: ResponseOutput, parameters: Any = None) -> InferenceResponse:
    return InferenceResponse(list(outputs), "errors", parameters=parameters or {})


def results(text: str) -> dict[str, Any]:
    """Return the results of predict() that are errors, by the value of the input `action`.

    They contain the client's text, which must not be in the log.
    """
    y = ResponseOutput("y", "BYTES", data=[text])
    n = ResponseOutput("n", "INT8", data=[1])
    return {
        "none": None,
        "undeclared": GOOD | {"extra": [text]},
        "missing": {"y": [text]},
        "one value": [text],
        "twice": response(y, y),
        "parameter": response(y, parameters={"key": [text]}),
        "wrong kind": GOOD | {"n": [text]},
        "wrong shape": GOOD | {"y": [[text]]},
        "out of range": GOOD | {"n": np.array([8675309])},
        "integers": GOOD | {"f": np.array([8675309])},
        "ragged": GOOD | {"f": [[1.0], [1.0, 1.0]]},
        "masked": GOOD | {"f": np.ma.array([8675309.0], mask=[True])},
        "object": GOOD | {"y": [{text: text}]},
        "gaps": GOOD | {"n": pd.Series([True, None], dtype="boolean")},
        "half a pair": GOOD | {"y": [f"{text}\ud800"]},
        "not UTF-8": GOOD | {"y": [text.encode() + b"\xff"]},
        "infinity": GOOD | {"f": np.array([np.inf], "f4")},
        "null": GOOD | {"y": [None]},
        "codec": GOOD | {"p": text},
        "model's own": InferenceResponse([y, n], model_name=text),
    }


def predict(
    _: Any,
    must: np.ndarray,
    text: list[str] = ABSENT,
    octets: np.ndarray = ABSENT,
    moments: list[datetime] = ABSENT,
    images: list[bytes] = ABSENT,
    flag: np.ndarray = ABSENT,
    small: np.ndarray = ABSENT,
    big: np.ndarray = ABSENT,
    double: np.ndarray = ABSENT,
    half: np.ndarray = ABSENT,
    action: list[str] = ABSENT,
) -> Any:
    """Return the result of the action for the client's first text.

    The action is a key of results(), or "raise", or "wait", which waits for the file FOLDER/<the
    first number>. After it, and without an action, the result is GOOD.
    """
    if not action:
        return GOOD
    if action[0] == "raise":
        raise ValueError("the model's own")
    if action[0] == "wait":
        wait_for_file(str(int(must[0])))
        return GOOD
    return results(text[0])[action[0]]


def wait_for_file(name: str) -> None:
    while not (Path(os.environ["FOLDER"]) / name).exists():
        time.sleep(0.01)


def create() -> Flask:
    """Return the application. load() waits for the file FOLDER/loaded."""
    register_input_codec(PickyCodec)  # here, and not in the process of the tests
    record_sites(append)

    def load() -> None:
        wait_for_file("loaded")

    return create_app(module=models.model(INPUTS, OUTPUTS, predict, load))
