"""The served model: METADATA declares inputs and outputs, load() and predict() implement it."""

import numpy as np

# app/api.py lists all names that a model can import from the service.
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
# Inputs for the warm-up call, for the startup message and for the documentation of the API.
EXAMPLE = {"features": [[5.1, 3.5, 1.4, 0.2]]}


def load():
    """Load and return the model, the first argument of predict(). Called once per worker."""
    with np.load(model_file("iris.npz")) as file:
        return dict(file)


def predict(model, features: np.ndarray):
    """Return the outputs by name. Each input is one parameter.

    `features` has the shape [rows, 4]: sepal length, sepal width, petal length and petal width in
    cm. `rows` can be 0. Several threads can call this function concurrently.
    """
    scores = (features - model["mean"]) / model["std"] @ model["weights"] + model["bias"]
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return {"label": model["labels"][probabilities.argmax(axis=1)], "probabilities": probabilities}
