"""The served model. Edit this file: METADATA declares inputs and outputs, load() and predict() implement the model.

XGBClassifier and similar classes need scikit-learn, too: add it to install_requires in setup.cfg, run `make lock`.
"""

import numpy as np
import xgboost as xgb

# app/api.py lists all names that a model can import from the service.
from app.api import MetadataTensor, ModelMetadata, model_file

METADATA = ModelMetadata(
    name="wine",
    version="1",
    platform="xgboost_ubj",
    inputs=[MetadataTensor("analysis", "FP32", [-1, 13])],
    outputs=[
        MetadataTensor("cultivar", "INT64", [-1]),
        MetadataTensor("probabilities", "FP32", [-1, 3]),
    ],
)
# Inputs for the warm-up call, for the startup message and for the documentation of the API.
EXAMPLE = {
    "analysis": [[14.23, 1.71, 2.43, 15.6, 127, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065]]
}


def load():
    """Load and return the model, the first argument of predict(). Called once per worker at startup."""
    return xgb.Booster(model_file=model_file("wine.ubj"))


def predict(model, analysis: np.ndarray):
    """Return the outputs by name. Each input is one parameter. Several threads can call inplace_predict() concurrently.

    `analysis`: the values of a wine in the order of examples/xgboost/wine.csv. NaN (null in JSON) is a missing value.
    """
    probabilities = model.inplace_predict(analysis).reshape(
        -1, 3
    )  # without rows, the shape is [0], not [0, 3]
    return {"cultivar": probabilities.argmax(axis=1), "probabilities": probabilities}
