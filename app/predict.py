"""The model. This is the file to edit: METADATA declares inputs and outputs, load() and predict() do the work."""

from __future__ import annotations

import numpy as np

# All names that a model may import are in app/api.py.
from app.api import MetadataTensor, ModelMetadata, model_file

METADATA = ModelMetadata(
    name="iris",
    version="1",
    platform="numpy_npz",
    inputs=[MetadataTensor("features", "FP32", [-1, 4])],
    outputs=[
        MetadataTensor("label", "BYTES", [-1], content_type="str"),
        MetadataTensor("probabilities", "FP32", [-1, 3]),
    ],
)
# The service calls predict() with it before it is ready, and shows a call with it at the start.
EXAMPLE = {"features": [[5.1, 3.5, 1.4, 0.2]]}


def load():
    """Return the model, the first argument of predict(). Each worker calls this once, before it is ready."""
    with np.load(model_file("iris.npz")) as file:
        return dict(file)


def predict(model, features: np.ndarray):
    """Return each output by name. Each input is a parameter. Several threads may call this at once.

    `features`: sepal length, sepal width, petal length and petal width in cm, [rows, 4]. There may be no rows.
    """
    scores = (features - model["mean"]) / model["std"] @ model["weights"] + model["bias"]
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return {"label": model["labels"][probabilities.argmax(axis=1)], "probabilities": probabilities}
