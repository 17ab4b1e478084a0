"""The model in app/predict.py. Edit this file along with it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.api import InvalidInput
from app.testing import Infer, serve

FLOWERS = Path(__file__).parents[1] / "examples" / "numpy" / "iris.csv"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


def test_accuracy(infer: Infer) -> None:
    """The classifier is correct for 147 of the 150 flowers that it was trained on."""
    with FLOWERS.open() as file:
        rows = list(csv.reader(file))[1:]
    flowers = np.array(rows)
    features, species = flowers[:, :4].astype(np.float32), flowers[:, 4]

    response = infer(features=features)

    is_correct = np.array(response["label"]) == species
    assert is_correct.sum() == 147
    assert response["probabilities"].shape == (150, 3)
    np.testing.assert_allclose(response["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_empty_batch(infer: Infer) -> None:
    """A request without rows returns outputs without rows."""
    response = infer(features=np.empty((0, 4), np.float32))
    assert response["label"] == []
    assert response["probabilities"].shape == (0, 3)


def test_rejects_wrong_number_of_measurements(infer: Infer) -> None:
    """A flower without exactly four measurements is rejected with an error that names the input."""
    with pytest.raises(InvalidInput, match='Input "features": invalid shape'):
        infer(features=[[5.1, 3.5, 1.4]])
