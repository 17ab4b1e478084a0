"""Small models for tests that do not depend on app/predict.py, which users edit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from app.api import InvalidInput, MetadataTensor, ModelMetadata


def load_nothing() -> None:
    """Replace load() of a model that needs no object."""


def skip_warm_up(_: Any) -> None:
    """Replace the service's own warm-up, which would call predict()."""


def model(
    inputs: list[MetadataTensor],
    outputs: list[MetadataTensor],
    predict: Any,
    load: Any = load_nothing,
    **functions: Any,
) -> Any:
    """Return a replacement of the module app/predict.py. `functions` are its optional functions."""
    module = SimpleNamespace(
        __name__="test model",
        METADATA=ModelMetadata("test", "1", "tests", inputs, outputs),
        load=load,
        predict=predict,
        warm_up=skip_warm_up,
    )
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def vector(name: str, datatype: str) -> MetadataTensor:
    """Return a tensor of one dimension of any size."""
    return MetadataTensor(name, datatype, [-1])


def echo(datatype: str, shape: list[int]) -> Any:
    """Return a model that echoes one tensor."""

    def predict(_: Any, x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x}

    inputs = [MetadataTensor("x", datatype, shape)]
    outputs = [MetadataTensor("y", datatype, shape)]
    return model(inputs, outputs, predict)


def two_by_two() -> Any:
    """Return a model with the row sums of an input, and twice the elements of another.

    The inputs are a FP32 [-1,2] and b INT64 [-1], which is optional. The outputs are `sum` FP32
    [-1] and `double` INT64 [-1].
    """
    seven = np.array([7])

    def predict(_: Any, a: np.ndarray, b: np.ndarray = seven) -> dict[str, np.ndarray]:
        return {"sum": a.sum(axis=1), "double": b * 2}

    inputs = [MetadataTensor("a", "FP32", [-1, 2]), vector("b", "INT64")]
    outputs = [vector("sum", "FP32"), vector("double", "INT64")]
    return model(inputs, outputs, predict)


def failing() -> Any:
    """Return a model that raises InvalidInput if its BYTES element is `invalid`.

    It raises ValueError otherwise.
    """

    def predict(_: Any, x: np.ndarray) -> None:
        if x[0] == b"invalid":
            raise InvalidInput("Invalid x. Expected another text, got invalid.")
        raise ValueError(f"cannot work with {x[0].decode()}")

    inputs = [vector("x", "BYTES")]
    outputs = [vector("y", "FP32")]
    return model(inputs, outputs, predict)


def several() -> Any:
    """Return a model that echoes a INT16 [-1], b BYTES [-1] and c FP32 [-1,2], all optional."""
    empty_a = np.empty(0, "i2")
    empty_b = np.empty(0, object)
    empty_c = np.empty((0, 2), "f4")

    def predict(
        _: Any, a: np.ndarray = empty_a, b: np.ndarray = empty_b, c: np.ndarray = empty_c
    ) -> dict[str, np.ndarray]:
        return {"a": a, "b": b, "c": c}

    tensors = [
        vector("a", "INT16"),
        vector("b", "BYTES"),
        MetadataTensor("c", "FP32", [-1, 2]),
    ]
    return model(tensors, tensors, predict)


def halves() -> Any:
    """Return a model that divides x FP32 [-1] by 2.

    It returns the result as `single` FP32, `half` FP16 and `bfloat` BF16.
    """

    def predict(_: Any, x: np.ndarray) -> dict[str, np.ndarray]:
        result = x / 2
        return {"single": result, "half": result.astype("f2"), "bfloat": result}

    inputs = [vector("x", "FP32")]
    outputs = [
        vector("single", "FP32"),
        vector("half", "FP16"),
        vector("bfloat", "BF16"),
    ]
    return model(inputs, outputs, predict)


def described() -> Any:
    """Return a model with content types, an optional input and properties."""
    zero = np.zeros((), "f4")

    def predict(_: Any, x: list[str], y: np.ndarray = zero) -> dict[str, Any]:
        return {"x": x, "y": y}

    tensors = [MetadataTensor("x", "BYTES", [-1], "str"), MetadataTensor("y", "FP32", [])]
    module = model(tensors, tensors, predict)
    module.METADATA.content_type = "np"
    module.METADATA.properties = {"framework": "numpy 2", "": "é"}
    return module
