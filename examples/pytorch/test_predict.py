"""The model in app/predict.py. Edit this file along with it."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app import create_app
from app.api import InvalidInput
from app.predict import METADATA
from app.testing import Infer, serve

EXAMPLE = Path(__file__).parents[1] / "examples" / "pytorch"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def passengers() -> np.ndarray:
    """Return the thousands of passengers in each month from 1949 to 1960."""
    with (EXAMPLE / "passengers.csv").open() as file:
        return np.array([float(row["thousands"]) for row in csv.DictReader(file)], np.float32)


def error(forecast: np.ndarray, actual: np.ndarray) -> float:
    """Return the mean absolute error as a fraction of the actual figures."""
    return float((abs(forecast - actual) / actual).mean())


def test_accuracy(infer: Infer, passengers: np.ndarray) -> None:
    """In two unseen years, the error is below 5 %. Repeating the previous year has an error above 9 %."""
    for january in (120, 132):
        before, year = passengers[:january], passengers[january : january + 12]
        forecast = infer(history=[before])["forecast"][0]
        assert error(forecast, year) < 0.05
        assert error(before[-12:], year) > 0.09


def test_example_request(infer: Infer, passengers: np.ndarray) -> None:
    """The example request contains 1957 and 1958, and returns a forecast for 1959."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    forecast = answer.json["outputs"][0]["data"]
    assert error(np.array(forecast), passengers[120:132]) < 0.05
    np.testing.assert_allclose(
        forecast, infer(history=[passengers[96:120]])["forecast"][0], rtol=1e-4
    )


def test_forecast_scales_with_history(infer: Infer, passengers: np.ndarray) -> None:
    """A series with doubled figures gets a doubled forecast, and each row of a batch is independent."""
    history = passengers[None, :120]
    answer = infer(history=np.concatenate([history, 2 * history]))["forecast"]
    np.testing.assert_allclose(answer[1], 2 * answer[0], rtol=1e-4)
    np.testing.assert_allclose(answer[:1], infer(history=history)["forecast"], rtol=1e-4)


def test_long_history(infer: Infer, passengers: np.ndarray) -> None:
    """Only the last ten years of a history are used."""
    long, short = infer(history=[passengers]), infer(history=[passengers[-120:]])
    np.testing.assert_equal(long, short)


def test_empty_batch(infer: Infer) -> None:
    """A request without series returns no forecasts."""
    assert infer(history=np.empty((0, 24), np.float32))["forecast"].shape == (0, 12)


def test_rejects_short_history(infer: Infer) -> None:
    """A history of less than two years is rejected with an error that names the reason."""
    with pytest.raises(InvalidInput, match="Invalid history. Expected at least 24 months, got 23"):
        infer(history=np.ones((1, 23)))
    with pytest.raises(InvalidInput, match='Input "history": invalid shape'):
        infer(history=np.ones(24))


@pytest.mark.parametrize("bad", [0, -1, np.nan])
def test_rejects_invalid_figures(infer: Infer, bad: float) -> None:
    """A month with zero, negative or missing passengers is rejected. A missing value is null in JSON."""
    with pytest.raises(InvalidInput, match="History: invalid data. Expected positive numbers"):
        infer(history=[[bad] + [100] * 23])


def test_rejects_infinity() -> None:
    """An infinite figure is rejected. JSON cannot carry one."""
    with (
        serve(forms=["binary", "grpc"]) as infer,
        pytest.raises(InvalidInput, match="Expected positive numbers"),
    ):
        infer(history=[[np.inf] + [100] * 23])
