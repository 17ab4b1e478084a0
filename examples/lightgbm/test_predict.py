"""The model in app/predict.py. Edit this file along with it."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from app import create_app
from app.api import InferenceRequest, InvalidInput, RequestInput
from app.predict import METADATA
from app.testing import Infer, serve

EXAMPLE = Path(__file__).parents[1] / "examples" / "lightgbm"
SATURDAY, MONDAY = datetime(2026, 6, 6), datetime(2026, 6, 8)


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


def visitors(infer: Infer, day: datetime, temperature: float = 20, holiday: bool = False) -> float:
    return infer(day=[day], temperature=[temperature], holiday=[holiday])["visitors"].item()


def test_mean_error(infer: Infer) -> None:
    """On the training data, including missing temperatures, the mean error is less than 11.5 visitors."""
    days = pd.read_csv(EXAMPLE / "visitors.csv", parse_dates=["day"])
    answer = infer(days.drop(columns="visitors"))
    assert np.abs(answer["visitors"] - days["visitors"]).mean() < 11.5


def test_weekdays_and_holidays(infer: Infer) -> None:
    """Also after the training period, there are few visitors on Mondays and many on Saturdays and holidays."""
    assert visitors(infer, MONDAY) < 10
    assert visitors(infer, SATURDAY) > 600
    assert visitors(infer, datetime(2026, 5, 1), holiday=True) > 2 * visitors(
        infer, datetime(2026, 4, 30)
    )


def test_example_request() -> None:
    """The example request with a Saturday, a Monday and a Christmas without a temperature gets plausible results."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    saturday, monday, christmas = answer.json["outputs"][0]["data"]
    assert monday < 10 < 400 < christmas < saturday


def test_offset_is_converted_to_utc(infer: Infer) -> None:
    """A datetime with an offset counts as its day in UTC."""
    sunday = datetime(2026, 6, 8, 1, tzinfo=timezone(timedelta(hours=2)))
    assert (
        visitors(infer, sunday) == visitors(infer, datetime(2026, 6, 7)) != visitors(infer, MONDAY)
    )


def test_empty_batch(infer: Infer) -> None:
    """A request without rows returns outputs without rows."""
    assert infer(day=[], temperature=[], holiday=[])["visitors"].shape == (0,)


def test_missing_temperature(infer: Infer) -> None:
    """A missing temperature is not treated as 0 °C."""
    assert visitors(infer, SATURDAY, np.nan) != visitors(infer, SATURDAY, 0)


@pytest.mark.parametrize("text", ["tomorrow", "2026-02-30", ""])
def test_rejects_invalid_dates(infer: Infer, text: str) -> None:
    """An invalid date is rejected with an error that names the expected format."""
    day = RequestInput("day", "BYTES", data=[text], parameters={"content_type": "str"})
    others = [
        RequestInput("temperature", "FP64", data=[20]),
        RequestInput("holiday", "BOOL", data=[False]),
    ]
    with pytest.raises(
        InvalidInput, match='Input "day": invalid data. Expected a datetime in ISO 8601'
    ):
        infer(InferenceRequest([day, *others]))


def test_rejects_missing_day(infer: Infer) -> None:
    """A missing day is rejected in a data frame and in JSON."""
    with pytest.raises(InvalidInput, match="Day: missing or out of range"):
        infer(
            pd.DataFrame({"day": pd.to_datetime([None]), "temperature": [20.0], "holiday": [False]})
        )
    null = json.loads((EXAMPLE / "request.json").read_bytes())
    null["inputs"][0]["data"][0] = None
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", json=null)
    assert (answer.status_code, "got null" in answer.json["error"]) == (400, True)


def test_rejects_another_datatype(infer: Infer) -> None:
    """A temperature that is text is rejected."""
    with pytest.raises(
        InvalidInput, match='Input "temperature": invalid datatype. Expected FP64, got BYTES'
    ):
        infer(pd.DataFrame({"day": [SATURDAY], "temperature": ["warm"], "holiday": [False]}))
