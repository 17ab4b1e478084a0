"""The model in app/predict.py. Edit this file along with it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from app.predict import METADATA

FLOWERS = Path(__file__).parents[2] / "examples" / "numpy" / "iris.csv"


@pytest.fixture(scope="module")
def service(serve):
    return serve()


def test_accuracy(service, form: str) -> None:
    """On the 150 flowers that it was trained on, the classifier is right for 147, whichever way they are sent."""
    with FLOWERS.open() as file:
        flowers = list(csv.reader(file))[1:]
    features = [float(value) for *row, _ in flowers for value in row]
    answer = service.forms[form].infer([("features", "FP32", [150, 4], features)], model=METADATA.name)
    assert answer.kind == "ok", answer.text
    _, shape, labels = answer.outputs["label"]
    assert shape == [150]
    assert sum(label.decode() == species for label, (*_, species) in zip(labels, flowers, strict=True)) == 147
    datatype, shape, probabilities = answer.outputs["probabilities"]
    assert (datatype, shape) == ("FP32", [150, 3])
    assert sum(probabilities) == pytest.approx(150, rel=1e-5)


def test_the_example_of_the_start_works(service) -> None:
    """The request that `make serve` prints is answered."""
    from app.example import example

    assert service.client.post(f"/v2/models/{METADATA.name}/infer", json=example(METADATA)).status_code == 200


def test_an_empty_batch(service, form: str) -> None:
    """No rows in, no rows out."""
    answer = service.forms[form].infer([("features", "FP32", [0, 4], [])], model=METADATA.name)
    assert answer.kind == "ok", answer.text
    assert answer.outputs == {"label": ("BYTES", [0], []), "probabilities": ("FP32", [0, 3], [])}
