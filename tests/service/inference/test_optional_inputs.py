"""Inputs that a request may omit: declared in METADATA, or by a default value of predict()'s parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.api import ConfigurationError, InferenceRequest, MetadataTensor
from app.inference.predict_adapter import ModelAdapter
from tests.kit import models

X = MetadataTensor("x", "FP32", [-1])
OPTIONAL = MetadataTensor("y", "FP32", [-1], optional=True)
NAMES = MetadataTensor("names", "BYTES", [-1], "str")


def names_of_dict(_: Any, inputs: dict[str, np.ndarray]) -> Any:
    return {"names": [*inputs]}


def names_of_frame(_: Any, inputs: pd.DataFrame) -> Any:
    return {"names": [*inputs.columns]}


def names_of_request(_: Any, inputs: InferenceRequest) -> Any:
    return {"names": [tensor.name for tensor in inputs.inputs]}


@pytest.mark.parametrize("predict", [names_of_dict, names_of_frame, names_of_request])
def test_whole_request_can_omit_inputs_that_metadata_declares_optional(
    serve, form: str, predict: Any
) -> None:
    """R15: a dict, DataFrame or InferenceRequest contains an optional input only if the client sends it."""
    client = serve(models.model([X, OPTIONAL], [NAMES], predict)).forms[form]

    both = client.infer([("x", "FP32", [1], [1.0]), ("y", "FP32", [1], [2.0])])
    one = client.infer([("x", "FP32", [1], [1.0])])
    none = client.infer([("y", "FP32", [1], [2.0])])

    assert [*both.outputs["names"][2]] == [b"x", b"y"]
    assert [*one.outputs["names"][2]] == [b"x"]
    assert (none.kind, none.text) == (
        "INVALID_ARGUMENT",
        'Input "x": missing. Expected "x" (optional: "y"), got "y".',
    )


def test_metadata_contains_what_the_owner_declares(serve) -> None:
    """R6, T1: the metadata and the configuration mark an input that METADATA declares as optional."""
    client = serve(models.model([X, OPTIONAL], [NAMES], names_of_dict)).client

    inputs = client.get("/v2/models/test").json["inputs"]
    config = client.get("/v2/models/test/config").json["input"]

    assert [tensor.get("parameters") for tensor in inputs] == [None, {"optional": True}]
    assert [tensor["optional"] for tensor in config] == [False, True]


def test_default_value_makes_an_input_optional() -> None:
    """An input is optional if its parameter has a default value. METADATA of the module is not changed."""
    tensors = [MetadataTensor("x", "FP32", [-1]), MetadataTensor("y", "FP32", [-1])]
    module = models.model(tensors, [X], lambda _, x, y=None: x)

    adapter = ModelAdapter(module)

    assert [tensor.optional for tensor in adapter.metadata.inputs] == [False, True]
    assert [tensor.optional for tensor in tensors] == [False, False]


def test_rejects_an_optional_input_without_a_default_value() -> None:
    """predict() with a parameter per input needs a default value for each input that METADATA declares as optional."""
    text = 'parameter "y": missing default value, because METADATA declares the input as optional'
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(models.model([X, OPTIONAL], [X], lambda _, x, y: x))


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ([X], [OPTIONAL], 'tensor "y": invalid optional. Expected False, because only inputs can'),
        (
            [MetadataTensor("x", "FP32", [-1], optional="no")],  # type: ignore[arg-type]
            [],
            'tensor "x": invalid optional. Expected True or False, got "no"',
        ),
    ],
)
def test_rejects_an_invalid_declaration(inputs: list, outputs: list, text: str) -> None:
    """`optional` is True or False, and False for outputs."""
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(models.model(inputs, outputs, names_of_dict))
