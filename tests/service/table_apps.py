"""Applications whose models have the inputs of a table, for the command `infer`."""

from __future__ import annotations

import itertools
import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.errors import InvalidInput
from app.protocol.metadata import MetadataTensor
from tests.kit import models
from tests.service.apps import NONE


def rows() -> Flask:
    """Return a service that echoes rows with one value of each kind. `pair` is [number, -number]. `whole` is optional.

    Rows whose text contains "fault" are rejected until FOLDER/fixed exists. Batches of more than one row take 0 to
    20 ms, depending on their first number.
    """
    kinds = {
        "number": ("FP64", None),
        "text": ("BYTES", "str"),
        "when": ("BYTES", "datetime"),
        "flag": ("BOOL", None),
    }
    inputs = [
        MetadataTensor(name, datatype, [-1], kind) for name, (datatype, kind) in kinds.items()
    ]
    inputs.append(MetadataTensor("whole", "INT64", [-1]))

    def predict(
        _: Any,
        number: np.ndarray,
        text: list[str],
        when: list[datetime],
        flag: np.ndarray,
        whole: np.ndarray = NONE,
    ) -> dict[str, Any]:
        if (
            any("fault" in (each or "") for each in text)
            and not (Path(os.environ["FOLDER"]) / "fixed").exists()
        ):
            raise InvalidInput("Invalid text. Expected text without a fault.")
        if len(number) > 1 and np.isfinite(number[0]):
            time.sleep(number[0] % 3 / 100)
        whole = whole if len(whole) else np.zeros(len(number), np.int64)
        pair = np.stack([number, -number], axis=1).astype(np.float32)
        return {
            "number": number,
            "text": text,
            "when": when,
            "flag": flag,
            "whole": whole,
            "pair": pair,
        }

    outputs = [*inputs, MetadataTensor("pair", "FP32", [-1, 2])]
    return create_app(module=models.model(inputs, outputs, predict))


def images() -> Flask:
    """Return a service that returns the size and the first four bytes of images, which are sent in base64."""

    def predict(_: Any, image: list[bytes]) -> dict[str, Any]:
        return {
            "size": np.array([len(each) for each in image]),
            "begins": [repr(each[:4]) for each in image],
        }

    outputs = [
        MetadataTensor("size", "INT64", [-1]),
        MetadataTensor("begins", "BYTES", [-1], "str"),
    ]
    return create_app(
        module=models.model([MetadataTensor("image", "BYTES", [-1], "base64")], outputs, predict)
    )


def four() -> Flask:
    """Return a service that maps four numbers per row to two."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return x @ np.arange(8, dtype=np.float32).reshape(4, 2)

    return create_app(
        module=models.model(
            [MetadataTensor("x", "FP32", [-1, 4])], [MetadataTensor("y", "FP32", [-1, 2])], predict
        )
    )


def once() -> Flask:
    """Return an FP32 echo whose first call succeeds, and whose later calls fail."""
    calls = itertools.count()

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if next(calls):
            raise RuntimeError("no second time")
        return x

    return create_app(
        module=models.model(
            [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])], predict
        )
    )


def values() -> Flask:
    """Return a service that converts a text to outputs of several kinds.

    `text` is the text, or missing if it is "gap". `json` is the parsed text, or the text itself if it is not JSON.
    `when` is a datetime, with an offset if the text contains "offset". `number` is infinite if it contains "inf".
    `bytes` is not UTF-8 if the text is "png", and empty otherwise.
    """

    def predict(_: Any, text: list[str]) -> dict[str, Any]:
        return {
            "text": [None if each == "gap" else each for each in text],
            "json": [as_json(each) for each in text],
            "when": ["2024-01-01T00:00:00" + "+01:00" * ("offset" in each) for each in text],
            "number": np.array([np.inf if "inf" in each else 0.0 for each in text]),
            "bytes": [b"\x89PNG" if each == "png" else b"" for each in text],
        }

    kinds = {"text": "str", "json": "pd_json", "when": "datetime"}
    outputs = [MetadataTensor(name, "BYTES", [-1], kind) for name, kind in kinds.items()]
    outputs += [MetadataTensor("number", "FP64", [-1]), MetadataTensor("bytes", "BYTES", [-1])]
    return create_app(
        module=models.model([MetadataTensor("text", "BYTES", [-1], "str")], outputs, predict)
    )


def as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def scaled() -> Flask:
    """Return a service that multiplies an FP32 tensor of at most two numbers by a scalar."""

    def predict(_: Any, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        if len(x) > 2:
            raise InvalidInput("Too many numbers. Expected at most 2.")
        return x * scale

    inputs = [MetadataTensor("x", "FP32", [-1]), MetadataTensor("scale", "FP32", [])]
    return create_app(module=models.model(inputs, [MetadataTensor("y", "FP32", [-1])], predict))
