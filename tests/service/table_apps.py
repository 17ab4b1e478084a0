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
    """Return a service that echoes rows with one value of each kind.

    The input `whole` is optional. The output `pair` is [number, -number]. Rows whose text contains
    "fault" are rejected until FOLDER/fixed exists. Batches of more than one row take 0 to 20 ms,
    depending on their first number.
    """

    def predict(
        _: Any,
        number: np.ndarray,
        text: list[str],
        when: list[datetime],
        flag: np.ndarray,
        whole: np.ndarray = NONE,
    ) -> dict[str, Any]:
        is_fixed = (Path(os.environ["FOLDER"]) / "fixed").exists()
        has_fault = any("fault" in (element or "") for element in text)
        if has_fault and not is_fixed:
            raise InvalidInput("Invalid text. Expected text without a fault.")

        if len(number) > 1 and np.isfinite(number[0]):
            time.sleep(number[0] % 3 / 100)

        if len(whole) == 0:
            whole = np.zeros(len(number), np.int64)
        pair = np.stack([number, -number], axis=1).astype(np.float32)
        return {
            "number": number,
            "text": text,
            "when": when,
            "flag": flag,
            "whole": whole,
            "pair": pair,
        }

    inputs = [
        models.vector("number", "FP64"),
        MetadataTensor("text", "BYTES", [-1], "str"),
        MetadataTensor("when", "BYTES", [-1], "datetime"),
        models.vector("flag", "BOOL"),
        models.vector("whole", "INT64"),
    ]
    outputs = [*inputs, MetadataTensor("pair", "FP32", [-1, 2])]
    return create_app(module=models.model(inputs, outputs, predict))


def images() -> Flask:
    """Return a service that returns the size and the first four bytes of images.

    The images are sent in base64.
    """

    def predict(_: Any, image: list[bytes]) -> dict[str, Any]:
        sizes = [len(octets) for octets in image]
        beginnings = [repr(octets[:4]) for octets in image]
        return {"size": np.array(sizes), "begins": beginnings}

    inputs = [MetadataTensor("image", "BYTES", [-1], "base64")]
    outputs = [models.vector("size", "INT64"), MetadataTensor("begins", "BYTES", [-1], "str")]
    return create_app(module=models.model(inputs, outputs, predict))


def four() -> Flask:
    """Return a service that maps four numbers per row to two."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return x @ np.arange(8, dtype=np.float32).reshape(4, 2)

    inputs = [MetadataTensor("x", "FP32", [-1, 4])]
    outputs = [MetadataTensor("y", "FP32", [-1, 2])]
    return create_app(module=models.model(inputs, outputs, predict))


def once() -> Flask:
    """Return an FP32 echo whose first call succeeds, and whose later calls fail."""
    calls = itertools.count()

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if next(calls):
            raise RuntimeError("no second time")
        return x

    inputs = [models.vector("x", "FP32")]
    outputs = [models.vector("y", "FP32")]
    return create_app(module=models.model(inputs, outputs, predict))


def values() -> Flask:
    """Return a service that converts a text to outputs of several kinds.

    `text` is the text, or missing if it is "gap". `json` is the parsed text, or the text itself if
    it is not JSON. `when` is a datetime, with an offset if the text contains "offset". `number` is
    infinite if it contains "inf". `bytes` is not UTF-8 if the text is "png", and empty otherwise.
    """

    def predict(_: Any, text: list[str]) -> dict[str, Any]:
        columns: dict[str, list[Any]] = {}
        for element in text:
            offset = "+01:00" if "offset" in element else ""
            row = {
                "text": None if element == "gap" else element,
                "json": as_json(element),
                "when": "2024-01-01T00:00:00" + offset,
                "number": np.inf if "inf" in element else 0.0,
                "bytes": b"\x89PNG" if element == "png" else b"",
            }
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
        return {**columns, "number": np.array(columns["number"])}

    inputs = [MetadataTensor("text", "BYTES", [-1], "str")]
    outputs = [
        MetadataTensor("text", "BYTES", [-1], "str"),
        MetadataTensor("json", "BYTES", [-1], "pd_json"),
        MetadataTensor("when", "BYTES", [-1], "datetime"),
        models.vector("number", "FP64"),
        models.vector("bytes", "BYTES"),
    ]
    return create_app(module=models.model(inputs, outputs, predict))


def as_json(text: str) -> Any:
    """Return the value of a JSON text, or the text itself if it is not JSON."""
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

    inputs = [models.vector("x", "FP32"), MetadataTensor("scale", "FP32", [])]
    outputs = [models.vector("y", "FP32")]
    return create_app(module=models.model(inputs, outputs, predict))
