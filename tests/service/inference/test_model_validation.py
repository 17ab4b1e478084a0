"""Models whose predict(), load() or metadata are not valid."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.inference.predict_adapter import ModelAdapter
from app.protocol.errors import ConfigurationError
from app.protocol.metadata import MetadataTensor, ModelMetadata
from tests.kit import models

X = MetadataTensor("x", "FP32", [-1])


def takes_other(_, other): ...


def takes_nothing(): ...


def takes_any(_, *x): ...


def takes_all(_, **x): ...


def takes_a_set(_, x: set): ...


def takes_an_unknown(_, x: Unknown): ...  # type: ignore[name-defined]  # noqa: F821


def takes_a_misspelt(_, x: np.ndarry): ...  # type: ignore[name-defined]


def takes_half(_, x: "np.ndarray["): ...  # type: ignore[syntax]  # noqa: F722


def takes_a_list(_, x: [np.ndarray]): ...  # type: ignore[valid-type]


def takes_more(_, x, z): ...


def takes_one(x: np.ndarray): ...


class Callable:
    def __call__(self, _, x): ...


async def is_async(_, x): ...


def yields(_, x):
    yield x


async def yields_later(_, x):
    yield x


@pytest.mark.parametrize(
    ("predict", "text"),
    [
        (
            takes_other,
            'predict.. does not match METADATA. Expected "x" after the model, as METADATA declares, got "other"',
        ),
        (
            takes_other,
            'got "other". Use the same names, or a single parameter that is a pd.DataFrame, ',
        ),
        (takes_more, 'Expected "x" after the model, as METADATA declares, got "x", "z"'),
        (
            takes_one,
            'Expected "x" after the model, as METADATA declares, got none. Use the same names',
        ),
        (takes_nothing, "has no parameters"),
        (takes_any, 'parameter "x": invalid kind. Expected no'),
        (takes_all, 'parameter "x": invalid kind. Expected no'),
        (takes_a_set, 'parameter "x": invalid annotation. Expected np.ndarray'),
        (takes_an_unknown, "cannot resolve an annotation: name 'Unknown'"),
        (
            takes_a_misspelt,
            "test_model_validation.py, line .*cannot resolve an annotation: module 'numpy' has no .*'ndarry'",
        ),
        (takes_half, "cannot resolve an annotation: "),
        (takes_a_list, r'parameter "x": invalid annotation. .* got \[<class'),
        (partial(takes_more, z=1), "Expected a function .def., got partial"),
        (Callable(), "Expected a function .def., got Callable"),
        (None, "Expected a function .def., got NoneType"),
        (is_async, "predict.. is async or a generator. Expected a plain function"),
        (
            yields,
            "test_model_validation.py, line .*predict.. is async or a generator. Expected a plain function",
        ),
        (yields_later, "predict.. is async or a generator"),
    ],
)
def test_rejects_signatures_that_do_not_match_metadata(predict: Any, text: str) -> None:
    """A predict() whose signature does not match METADATA fails at startup."""
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(models.model([X], [X], predict))


@pytest.mark.parametrize("name", ["my-image", "class", "1"])
def test_error_explains_inputs_that_are_not_identifiers(name: str) -> None:
    """The error shows how to receive an input whose name cannot be the name of a parameter."""
    tensors = [X, MetadataTensor(name, "FP32", [-1])]
    with pytest.raises(
        ConfigurationError,
        match=f'"{name}".*. Use the same names, or a single parameter that is a pd.DataFrame, ',
    ):
        ModelAdapter(models.model(tensors, [X], takes_more))


@pytest.mark.parametrize("name", ["warm_up", "is_healthy", "unload"])
def test_rejects_functions_without_parameters(name: str) -> None:
    """An optional function that does not take the model fails at startup."""
    module = models.model([X], [X], lambda _, x: x)
    setattr(module, name, lambda: None)
    with pytest.raises(
        ConfigurationError,
        match=rf"line \d+: {name}\(\) has no parameters. Expected the result of load",
    ):
        ModelAdapter(module)


@pytest.mark.parametrize("name", ["load", "warm_up", "is_healthy", "unload"])
@pytest.mark.parametrize("function", [is_async, yields])
def test_rejects_async_functions(name: str, function: Any) -> None:
    """A load() or an optional function that is async or a generator fails at startup."""
    module = models.echo("FP32", [-1])
    setattr(module, name, function)
    with pytest.raises(
        ConfigurationError,
        match=rf"test_model_validation.py, line \d+: {name}\(\) is async or a generator",
    ):
        ModelAdapter(module)


@pytest.mark.parametrize("name", ["METADATA", "load", "predict"])
def test_rejects_missing_parts(name: str) -> None:
    """A module without METADATA, load() or predict() fails at startup."""
    module = models.echo("FP32", [-1])
    delattr(module, name)
    with pytest.raises(ConfigurationError, match=f"missing {name}"):
        ModelAdapter(module)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"name": "iris"}, "Expected a ModelMetadata, got dict"),
        (
            ModelMetadata("", "1", "p", [], []),
            "METADATA: invalid name. Expected text without a slash, got ''",
        ),
        (
            ModelMetadata("m", 1, "p", [], []),
            "METADATA: invalid version. Expected text without a slash, got 1",
        ),  # type: ignore[arg-type]
        (
            ModelMetadata("a/b", "1", "p", [], []),
            "METADATA: invalid name. Expected text without a slash, got 'a/b'",
        ),
        (ModelMetadata("m", "1", "p", [X, X], []), 'METADATA: duplicate inputs. Got "x" twice'),
        (
            ModelMetadata("m", "1", "p", [{"name": "x", "datatype": "FP32"}], []),  # type: ignore[list-item]
            "METADATA: invalid inputs. Expected a list of MetadataTensor, got .{'name': 'x', 'datatype': 'FP32'}..$",
        ),
        (
            ModelMetadata("m", "1", "p", {"x": "FP32"}, []),
            "inputs. Expected a list .*, got {'x': 'FP32'}.$",
        ),  # type: ignore[arg-type]
        (ModelMetadata("m", "1", "p", X, []), "inputs. Expected a list .*, got MetadataTensor"),  # type: ignore[arg-type]
        (ModelMetadata("m", "1", "p", [X], ["y"]), "outputs. Expected a list .*, got .'y'..$"),  # type: ignore[list-item]
        *(
            (
                ModelMetadata("m", "1", "p", [], [], properties=properties),
                f"METADATA: invalid properties. Expected a dict of strings, got {got}. Convert names and values",
            )
            for properties, got in [
                ({"rows": 150, "framework": "numpy"}, "{'rows': 150, 'framework': 'numpy'}"),
                ({1: "a"}, "{1: 'a'}"),
                ({"a": None}, "{'a': None}"),
                ({"a": b"b"}, "{'a': b'b'}"),
                ([("a", "b")], r"\[\('a', 'b'\)\]"),
                (None, "None"),
            ]
        ),
    ],
)
def test_rejects_invalid_metadata(metadata: Any, text: str) -> None:
    """Invalid METADATA fails at startup, and the error names the field."""
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(
            SimpleNamespace(__name__="m", METADATA=metadata, load=None, predict=lambda _: None)
        )


@pytest.mark.parametrize(
    ("datatype", "shape"), [("fp32", [1]), ("FP32", [-2]), ("FP32", [1.0]), ("FP32", [True])]
)
def test_rejects_invalid_metadata_tensors(datatype: str, shape: list) -> None:
    """R1, R9: a declared tensor needs a known datatype and dimensions of at least -1."""
    with pytest.raises(ConfigurationError, match='METADATA, tensor "x"'):
        MetadataTensor("x", datatype, shape)


def test_tuple_shape_becomes_a_list() -> None:
    """A shape declared as a tuple becomes a list, so that it compares equal to the shape of a request."""
    assert MetadataTensor("x", "FP32", (-1, 2)).shape == [-1, 2]  # type: ignore[arg-type]
