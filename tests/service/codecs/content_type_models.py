"""Models that describe the argument that predict() received, or return a given value."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing
import pandas as pd

from app.protocol.metadata import MetadataTensor
from tests.kit import models

TEXT = ("x", "BYTES", [2], ["YWI=", "Y2Q="])
MOMENTS = [datetime(2024, 1, 2), datetime(2024, 1, 3, 4, 5, 6, tzinfo=UTC)]


def describe(value: Any) -> str:
    """Return a text with the type of `value` and its elements."""
    if isinstance(value, np.ndarray):
        return f"ndarray {list(value.shape)} {plain(value.ravel().tolist())!r}"
    return f"{type(value).__name__} {plain(value)!r}"


def plain(value: Any) -> Any:
    """Return `value` with datetimes as text, because their repr differs between Python versions."""
    if not isinstance(value, list):
        return value

    elements = []
    for element in value:
        if isinstance(element, datetime):
            elements.append(f"moment {element.isoformat()}")
        else:
            elements.append(element)
    return elements


def describing_model(
    annotation: Any,
    *inputs: MetadataTensor,
    content_type: str | None = None,
    name: str = "x",
    default: Any = ...,
) -> Any:
    """Return a model whose predict() describes its only argument.

    The parameter has this annotation, and a default unless `default` is an ellipsis.
    """
    if default is ...:

        def predict(_, x):
            return [describe(x)]
    else:

        def predict(_, x=default):
            return [describe(x)]

    if annotation is not None:
        predict.__annotations__["x"] = annotation
    outputs = [MetadataTensor("y", "BYTES", [1])]
    module = models.model(list(inputs or [BYTES]), outputs, predict)
    module.METADATA.content_type = content_type
    return module


BYTES = MetadataTensor("x", "BYTES", [-1])
NUMBER = MetadataTensor("x", "FP32", [-1])


def declared(content_type: str | None) -> MetadataTensor:
    return MetadataTensor("x", "BYTES", [-1], content_type)


def got(response: Any) -> str:
    """Return the description in a response."""
    assert response.is_success, response.text
    _, _, elements = response.outputs["y"]
    return elements[0].decode()


def returning(value: Any, *outputs: MetadataTensor, content_type: str | None = None) -> Any:
    """Return a model without inputs whose predict() returns `value`."""

    def predict(_: Any) -> Any:
        return value

    module = models.model([], list(outputs), predict)
    module.METADATA.content_type = content_type
    return module


FRAME_INPUTS = [
    MetadataTensor("sepal length", "FP32", [-1]),
    MetadataTensor("class", "BYTES", [-1], content_type="str"),
    MetadataTensor("when", "BYTES", [-1], content_type="datetime"),
    MetadataTensor("0", "INT64", [-1, 1]),
]
FRAME_SENT = [
    ("0", "INT64", [2], [5, 6]),
    ("when", "BYTES", [2, 1], ["2024-01-02", "2024-01-03"]),
    ("sepal length", "FP32", [2, 1], [1.5, 2.5]),
    ("class", "BYTES", [2], ["a", "é"]),
]


def frame_model(content_type: str | None = None) -> Any:
    """Return a model whose output describes the columns, dtypes and values of the DataFrame."""

    def predict(_, frame: pd.DataFrame):
        # Without the unit and the time zone of a datetime.
        kinds = [str(dtype).split("[")[0] for dtype in frame.dtypes]
        rows = []
        for row in frame.itertuples(index=False):
            rows.append([str(cell) for cell in row])
        return [json.dumps([list(frame), kinds, rows])]

    module = models.model(FRAME_INPUTS, [MetadataTensor("y", "BYTES", [1])], predict)
    module.METADATA.content_type = content_type
    return module
