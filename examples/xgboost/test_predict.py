"""The model in app/predict.py. Edit this file along with it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app import create_app
from app.api import InvalidInput
from app.predict import METADATA
from app.testing import Infer, serve

EXAMPLE = Path(__file__).parents[1] / "examples" / "xgboost"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def wines() -> np.ndarray:
    return np.loadtxt(EXAMPLE / "wine.csv", np.float32, delimiter=",", skiprows=1)


def test_accuracy(infer: Infer, wines: np.ndarray) -> None:
    """The model is correct for all 178 wines, although a tenth of their values was missing in training."""
    answer = infer(analysis=wines[:, :-1])
    assert (answer["cultivar"] == wines[:, -1]).all()
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_missing_values(infer: Infer, wines: np.ndarray) -> None:
    """NaN (null in JSON) is a missing value, not 0. Without the last four values, 172 predictions are correct."""
    analyses = wines[:, :-1].copy()
    analyses[:, -4:] = np.nan
    answer = infer(analysis=analyses)
    assert (answer["cultivar"] == wines[:, -1]).sum() == 172
    assert (
        infer(analysis=np.nan_to_num(analyses))["probabilities"] != answer["probabilities"]
    ).any()


def test_all_values_missing(infer: Infer) -> None:
    """A wine without any value gets a prediction."""
    assert infer(analysis=np.full((1, 13), np.nan))["probabilities"].sum() == pytest.approx(1)


def test_example_request() -> None:
    """The example request has the first wine, and the last but one without three of its values."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    assert answer.json["outputs"][0]["data"] == [0, 2]


def test_empty_batch(infer: Infer) -> None:
    """A request without rows returns outputs without rows."""
    answer = infer(analysis=np.empty((0, 13), np.float32))
    assert answer["cultivar"].shape == (0,)
    assert answer["probabilities"].shape == (0, 3)


@pytest.mark.parametrize("shape", [(1, 12), (13,), (1, 1, 13)])
def test_rejects_another_shape(infer: Infer, shape: tuple[int, ...]) -> None:
    """An analysis must have 13 values. Otherwise, the error names the expected shape."""
    with pytest.raises(InvalidInput, match='Input "analysis": invalid shape. Expected \\[-1,13\\]'):
        infer(analysis=np.zeros(shape, np.float32))
