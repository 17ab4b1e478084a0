"""The model in app/predict.py. Edit this file along with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app import create_app
from app.api import InvalidInput
from app.predict import METADATA
from app.testing import Infer, serve

EXAMPLE = Path(__file__).parents[1] / "examples" / "scikit-learn"
PENGUIN = {
    "bill_length_mm": [39.1],
    "bill_depth_mm": [18.7],
    "flipper_length_mm": [181.0],
    "body_mass_g": [3750.0],
    "island": ["Torgersen"],
    "sex": ["male"],
}


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def penguins() -> pd.DataFrame:
    return pd.read_csv(EXAMPLE / "penguins.csv")


def test_accuracy(infer: Infer, penguins: pd.DataFrame) -> None:
    """The classifier is correct for 343 of the 344 penguins that it was trained on, including missing values."""
    answer = infer(penguins.drop(columns="species"))
    assert sum(penguins["species"] == answer["species"]) == 343
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1)


def test_example_request() -> None:
    """The example request has the first penguin and one without a mass and a sex."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    assert answer.json["outputs"][0]["data"] == ["Adelie", "Gentoo"]


def test_missing_text(infer: Infer) -> None:
    """Missing text is "", null in JSON, or a missing value in a data frame, with the same result."""
    empty = infer(**PENGUIN | {"sex": [""]})
    assert empty["probabilities"].tolist() != infer(**PENGUIN)["probabilities"].tolist()
    np.testing.assert_equal(infer(**PENGUIN | {"sex": [None]}), empty)
    np.testing.assert_equal(infer(pd.DataFrame(PENGUIN | {"sex": [None]})), empty)


def test_all_values_missing(infer: Infer) -> None:
    """A row with only missing values gets a prediction."""
    nothing = {
        tensor.name: [""] if tensor.datatype == "BYTES" else [np.nan] for tensor in METADATA.inputs
    }
    assert infer(**nothing)["species"] == ["Adelie"]


def test_unknown_island(infer: Infer) -> None:
    """A category that is not in the training data equals a missing one."""
    unknown, none = infer(**PENGUIN | {"island": ["Utopia"]}), infer(**PENGUIN | {"island": [""]})
    np.testing.assert_equal(unknown, none)


def test_empty_batch(infer: Infer) -> None:
    """A request without rows returns outputs without rows."""
    answer = infer(**{name: [] for name in PENGUIN})
    assert answer["species"] == []
    assert answer["probabilities"].shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"body_mass_g": [[3750.0, 3800.0]]},
            'Input "body_mass_g": invalid shape. Expected \\[-1\\], got \\[1,2\\]',
        ),
        ({"body_mass_g": [3750.0, 3800.0]}, "Columns have different numbers of rows"),
    ],
)
def test_rejects_another_shape(infer: Infer, change: dict[str, Any], told: str) -> None:
    """A column must have one value per row. Otherwise, the error names the problem."""
    with pytest.raises(InvalidInput, match=told):
        infer(**PENGUIN | change)


def test_rejects_missing_column(infer: Infer) -> None:
    with pytest.raises(InvalidInput, match='Input "sex": missing'):
        infer(**{name: value for name, value in PENGUIN.items() if name != "sex"})


def test_rejects_infinity() -> None:
    """An infinite value is rejected. JSON cannot carry one."""
    with (
        serve(forms=["binary", "grpc"]) as infer,
        pytest.raises(InvalidInput, match="Expected finite numbers"),
    ):
        infer(**PENGUIN | {"body_mass_g": [np.inf]})
