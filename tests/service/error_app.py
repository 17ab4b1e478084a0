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


def response(*names: str, parameters: Any = None) -> InferenceResponse:
    outputs = [ResponseOutput(name, "BYTES", data=[name]) for name in names]
    return InferenceResponse(outputs, "errors", parameters=parameters or {})


# The results of predict() that are errors, by the value of the input `action`. They are functions
# of the client's text.
RESULTS: dict[str, Callable[[str], Any]] = {
    "none": lambda text: None,
    "undeclared": lambda text: {**GOOD, "extra": [text]},
    "missing": lambda text: {"y": [text]},
    "one value": lambda text: [text],
    "twice": lambda text: response("y", "y"),
    "parameter": lambda text: response("y", parameters={"key": [text]}),
    "wrong kind": lambda text: {**GOOD, "n": [text]},
    "wrong shape": lambda text: {**GOOD, "y": [[text]]},
    "out of range": lambda text: {**GOOD, "n": np.array([8675309])},
    "integers": lambda text: {**GOOD, "f": np.array([8675309])},
    "ragged": lambda text: {**GOOD, "f": [[1.0], [1.0, float(text == text)]]},
    "masked": lambda text: {**GOOD, "f": np.ma.array([8675309.0], mask=[True])},
    "object": lambda text: {**GOOD, "y": [{text: text}]},
    "gaps": lambda text: {**GOOD, "n": pd.Series([True, None], dtype="boolean")},
    "half a pair": lambda text: {**GOOD, "y": [f"{text}\ud800"]},
    "not UTF-8": lambda text: {**GOOD, "y": [f"{text}\xff".encode("latin-1")]},
    "infinity": lambda text: {**GOOD, "f": np.array([np.inf], "f4")},
    "null": lambda text: {**GOOD, "y": [None]},
    "codec": lambda text: {**GOOD, "p": text},
    "model's own": lambda text: InferenceResponse(
        [ResponseOutput("y", "BYTES", data=[text]), ResponseOutput("n", "INT8", data=[1])], text
    ),
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

    The action is one of RESULTS, "raise", or "wait", which waits for the file FOLDER/<the first
    number>. Without it, the result is GOOD.
    """
    action_name = action[0] if action else ""
    if action_name == "raise":
        raise ValueError("the model's own")
    if action_name == "wait":
        wait_for_file(str(int(must[0])))
    if action_name in RESULTS:
        make_result = RESULTS[action_name]
        return make_result(text[0])
    return GOOD


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
