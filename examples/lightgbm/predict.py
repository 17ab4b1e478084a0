"""The served model. Edit this file: METADATA declares inputs and outputs, load() and predict() implement the model."""

from __future__ import annotations

import lightgbm as lgb
import pandas as pd

# app/api.py lists all names that a model can import from the service.
# Other modules of app/ can change with each version.
from app.api import InvalidInput, MetadataTensor, ModelMetadata, model_file

METADATA = ModelMetadata(
    name="visitors",
    version="1",
    platform="lightgbm_text",
    inputs=[
        MetadataTensor("day", "BYTES", [-1], content_type="datetime"),
        MetadataTensor("temperature", "FP64", [-1]),
        MetadataTensor("holiday", "BOOL", [-1]),
    ],
    outputs=[MetadataTensor("visitors", "FP64", [-1])],
)
# The service calls predict() with it before it is ready, and shows a call with it at the start.
EXAMPLE = {"day": ["2026-06-06"], "temperature": [21.5], "holiday": [False]}


def load():
    """Return the model, the first argument of predict(). Each worker calls this once, before it is ready."""
    return lgb.Booster(model_file=model_file("visitors.txt"))


def predict(model, frame: pd.DataFrame):
    """Return each output by name. Each input is a column, and each row is a day. Several threads may call this at once.

    NaN (null in JSON) is a missing temperature. A day with an offset counts as its day in UTC.
    """
    days = pd.to_datetime(frame["day"], errors="coerce")
    if days.isna().any():  # "NaT", or outside the range of pandas 2
        raise InvalidInput("Day: missing or out of range. Expected dates from 1678 to 2261.")
    features = pd.DataFrame(
        {
            "weekday": days.dt.day_of_week,
            "day_of_year": days.dt.day_of_year,
            "temperature": frame["temperature"],
            "holiday": frame["holiday"],
        }
    )
    if features.empty:  # lightgbm rejects it
        return {"visitors": []}
    return {"visitors": model.predict(features, validate_features=True)}  # otherwise, columns are matched by position
