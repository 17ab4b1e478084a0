"""The served model. Edit this file: METADATA declares inputs and outputs, load() and predict() implement the model."""

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
# Inputs for the warm-up call, for the startup message and for the documentation of the API.
EXAMPLE = {"day": ["2026-06-06"], "temperature": [21.5], "holiday": [False]}


def load():
    """Load and return the model, the first argument of predict(). Called once per worker at startup."""
    return lgb.Booster(model_file=model_file("visitors.txt"))


def predict(model, frame: pd.DataFrame):
    """Return the outputs by name. Each column is an input, each row a day. Several threads can call this concurrently.

    NaN (null in JSON) is a missing temperature. A day with a UTC offset is converted to UTC.
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
    return {
        "visitors": model.predict(features, validate_features=True)
    }  # otherwise, columns are matched by position
