"""The model in app/predict.py. Edit this file along with it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.errors import InvalidInput
from app.testing import Infer, serve

FLOWERS = Path(__file__).parents[1] / "examples" / "numpy" / "iris.csv"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Asks the model as clients do: over REST, by JSON and by binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


def test_accuracy(infer: Infer) -> None:
    """On the 150 flowers that it was trained on, the classifier is right for 147."""
    with FLOWERS.open() as file:
        flowers = list(csv.reader(file))[1:]
    answer = infer(features=[[float(value) for value in row] for *row, _ in flowers])
    assert sum(label == species for label, (*_, species) in zip(answer["label"], flowers, strict=True)) == 147
    assert answer["probabilities"].shape == (150, 3)
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_an_empty_batch(infer: Infer) -> None:
    """No rows in, no rows out."""
    answer = infer(features=np.empty((0, 4), np.float32))
    assert answer["label"] == []
    assert answer["probabilities"].shape == (0, 3)


def test_a_flower_has_four_measurements(infer: Infer) -> None:
    """Anything else is refused, and the client reads why."""
    with pytest.raises(InvalidInput, match="features"):
        infer(features=[[5.1, 3.5, 1.4]])
