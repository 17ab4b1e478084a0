"""The served model. Edit this file: METADATA declares inputs and outputs, load() and predict() implement the model."""

import warnings

import joblib
import numpy as np
import pandas as pd
from sklearn.exceptions import InconsistentVersionWarning

# app/api.py lists all names that a model can import from the service.
# Other modules of app/ can change with each version.
from app.api import InvalidInput, MetadataTensor, ModelMetadata, model_file

NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
WORDS = ["island", "sex"]

METADATA = ModelMetadata(
    name="penguins",
    version="1",
    platform="sklearn_joblib",
    inputs=[
        *(MetadataTensor(name, "FP64", [-1]) for name in NUMBERS),
        *(MetadataTensor(name, "BYTES", [-1], content_type="str", missing="") for name in WORDS),
    ],
    outputs=[
        MetadataTensor("species", "BYTES", [-1], content_type="str"),
        MetadataTensor("probabilities", "FP64", [-1, 3]),
    ],
)
EXAMPLE = {  # inputs for the warm-up call, for the startup message and for the documentation of the API
    "bill_length_mm": [39.1],
    "bill_depth_mm": [18.7],
    "flipper_length_mm": [181],
    "body_mass_g": [3750],
    "island": ["Torgersen"],
    "sex": ["male"],
}


def load():
    """Load and return the model, the first argument of predict(). Called once per worker at startup."""
    # Loading a pickle runs the code in it, so load only a file that you trust. It requires the
    # version of scikit-learn that wrote it: pin that version in setup.cfg.
    with warnings.catch_warnings():
        warnings.simplefilter("error", InconsistentVersionWarning)
        return joblib.load(model_file("penguins.joblib"))


def predict(model, frame: pd.DataFrame):
    """Return the outputs by name. Each column is an input, each row a penguin. Threads can call this concurrently.

    A missing value is NaN. Clients send null for it, or "" for text if they do not send JSON.
    """
    if np.isinf(frame[NUMBERS]).any(axis=None):
        raise InvalidInput(
            f"Invalid {', '.join(NUMBERS)}. Expected finite numbers, or NaN for a missing value."
        )
    if frame.empty:  # scikit-learn rejects an empty frame
        return {"species": [], "probabilities": np.empty((0, 3))}
    frame[WORDS] = frame[WORDS].fillna("")
    probabilities = model.predict_proba(frame)
    return {"species": model.classes_[probabilities.argmax(axis=1)], "probabilities": probabilities}
