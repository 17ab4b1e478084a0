"""The model in app/predict.py. Edit this file along with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app import create_app
from app.errors import InvalidInput
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
    """Asks the model as clients do: over REST, by JSON and by binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def penguins() -> pd.DataFrame:
    return pd.read_csv(EXAMPLE / "penguins.csv")


def test_accuracy(infer: Infer, penguins: pd.DataFrame) -> None:
    """Of the 344 penguins that it was trained on, gaps and all, the classifier knows 343."""
    answer = infer(penguins.drop(columns="species"))
    assert sum(penguins["species"] == answer["species"]) == 343
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1)


def test_the_request_of_the_example() -> None:
    """The first penguin, and one that was not weighed and whose sex is not known."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    assert answer.json["outputs"][0]["data"] == ["Adelie", "Gentoo"]


def test_missing_text(infer: Infer) -> None:
    """Text is missing as "", as null in JSON, and as a gap in a frame, which is the same."""
    empty = infer(**PENGUIN | {"sex": [""]})
    assert empty["probabilities"].tolist() != infer(**PENGUIN)["probabilities"].tolist()
    np.testing.assert_equal(infer(pd.DataFrame(PENGUIN | {"sex": [None]})), empty)
    with serve(forms=["json"]) as infer_json:
        np.testing.assert_equal(infer_json(**PENGUIN | {"sex": [None]}), empty)


def test_nothing_known(infer: Infer) -> None:
    """A row of gaps alone has an answer, too."""
    nothing = {tensor.name: [""] if tensor.datatype == "BYTES" else [np.nan] for tensor in METADATA.inputs}
    assert infer(**nothing)["species"] == ["Adelie"]


def test_an_unknown_island(infer: Infer) -> None:
    """A category that the training data did not have says as much as none."""
    unknown, none = infer(**PENGUIN | {"island": ["Utopia"]}), infer(**PENGUIN | {"island": [""]})
    np.testing.assert_equal(unknown, none)


def test_an_empty_batch(infer: Infer) -> None:
    """No rows in, no rows out."""
    answer = infer(**{name: [] for name in PENGUIN})
    assert answer["species"] == []
    assert answer["probabilities"].shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"body_mass_g": [[3750.0, 3800.0]]}, 'input "body_mass_g": shape: expected \\[-1\\], got \\[1,2\\]'),
        ({"body_mass_g": [3750.0, 3800.0]}, "the columns have different numbers of rows"),
    ],
)
def test_another_shape(infer: Infer, change: dict[str, Any], told: str) -> None:
    """A column has a value a row, and the client reads what is wrong with another."""
    with pytest.raises(InvalidInput, match=told):
        infer(**PENGUIN | change)


def test_a_column_is_missing(infer: Infer) -> None:
    with pytest.raises(InvalidInput, match='input "sex": missing'):
        infer(**{name: value for name, value in PENGUIN.items() if name != "sex"})


def test_infinity() -> None:
    """No penguin is infinite; JSON has no word for it."""
    with serve(forms=["binary", "grpc"]) as infer, pytest.raises(InvalidInput, match="expected finite numbers"):
        infer(**PENGUIN | {"body_mass_g": [np.inf]})
