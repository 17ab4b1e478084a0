"""Small models for tests that do not depend on app/predict.py, which users edit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from app.api import InvalidInput, MetadataTensor, ModelMetadata


def model(
    inputs: list[MetadataTensor],
    outputs: list[MetadataTensor],
    predict: Any,
    load: Any = lambda: None,
    **functions: Any,
) -> Any:
    """Return a replacement of the module app/predict.py. `functions` are optional functions of it."""
    metadata = ModelMetadata("test", "1", "tests", inputs, outputs)
    functions = {"warm_up": lambda model: None, **functions}
    return SimpleNamespace(
        __name__="test model", METADATA=metadata, load=load, predict=predict, **functions
    )


def echo(datatype: str, shape: list[int]) -> Any:
    """Return a model that echoes one tensor."""
    return model(
        [MetadataTensor("x", datatype, shape)],
        [MetadataTensor("y", datatype, shape)],
        lambda _, x: {"y": x},
    )


def two_by_two() -> Any:
    """Return a model with inputs a FP32 [-1,2] and b INT64 [-1] (optional), and outputs row sums of a and 2 * b."""

    def predict(_: Any, a: np.ndarray, b: np.ndarray = np.array([7])) -> dict[str, np.ndarray]:  # noqa: B008
        return {"sum": a.sum(axis=1), "double": b * 2}

    return model(
        [MetadataTensor("a", "FP32", [-1, 2]), MetadataTensor("b", "INT64", [-1])],
        [MetadataTensor("sum", "FP32", [-1]), MetadataTensor("double", "INT64", [-1])],
        predict,
    )


def failing() -> Any:
    """Return a model that raises InvalidInput if its BYTES element is `invalid`, and ValueError otherwise."""

    def predict(_: Any, x: np.ndarray) -> None:
        if x[0] == b"invalid":
            raise InvalidInput("Invalid x. Expected another text, got invalid.")
        raise ValueError(f"cannot work with {x[0].decode()}")

    return model([MetadataTensor("x", "BYTES", [-1])], [MetadataTensor("y", "FP32", [-1])], predict)


NOTHING = {"a": np.empty(0, "i2"), "b": np.empty(0, object), "c": np.empty((0, 2), "f4")}


def several() -> Any:
    """Return a model that echoes a INT16 [-1], b BYTES [-1] and c FP32 [-1,2], which are all optional."""

    def predict(
        _: Any,
        a: np.ndarray = NOTHING["a"],
        b: np.ndarray = NOTHING["b"],
        c: np.ndarray = NOTHING["c"],
    ) -> dict[str, np.ndarray]:
        return {"a": a, "b": b, "c": c}

    tensors = [
        MetadataTensor("a", "INT16", [-1]),
        MetadataTensor("b", "BYTES", [-1]),
        MetadataTensor("c", "FP32", [-1, 2]),
    ]
    return model(tensors, tensors, predict)


def halves() -> Any:
    """Return a model that divides x FP32 [-1] by 2. The outputs are `single` FP32, `half` FP16 and `bfloat` BF16."""
    return model(
        [MetadataTensor("x", "FP32", [-1])],
        [
            MetadataTensor(*each, [-1])
            for each in [("single", "FP32"), ("half", "FP16"), ("bfloat", "BF16")]
        ],
        lambda _, x: {"single": x / 2, "half": (x / 2).astype("f2"), "bfloat": x / 2},
    )


def described() -> Any:
    """Return a model with content types, an optional input and properties."""
    tensors = [MetadataTensor("x", "BYTES", [-1], "str"), MetadataTensor("y", "FP32", [])]

    def predict(_: Any, x: list[str], y: np.ndarray = np.zeros((), "f4")) -> dict[str, Any]:  # noqa: B008
        return {"x": x, "y": y}

    module = model(tensors, tensors, predict)
    module.METADATA.content_type, module.METADATA.properties = (
        "np",
        {"framework": "numpy 2", "": "é"},
    )
    return module
