"""The model: any pyfunc that MLflow saved with a signature. METADATA follows the signature (app/signature.py).

Add the packages of its requirements.txt to install_requires in setup.cfg, with mlflow-skinny in place of mlflow.
SIGHUP loads a new model.
"""

import numpy as np
import pandas as pd

# app/api.py lists all names that a model can import from the service.
# Other modules of app/ can change with each version.
from app.api import InvalidInput, ModelMetadata, model_file
from app.signature import by_input, declared, mlflow, read_model

FOLDER = str(model_file("MLmodel").parent)
MODEL = read_model(FOLDER)
SIGNATURE = MODEL.signature
METADATA = ModelMetadata(
    name="mass",
    version="1",
    platform="mlflow_pyfunc",
    inputs=declared(SIGNATURE.inputs, "input"),
    outputs=declared(SIGNATURE.outputs, "output"),
)
# The input example saved with the model, for the warm-up call, the startup message and the documentation of the API.
EXAMPLE = by_input(MODEL.load_input_example(FOLDER), SIGNATURE.inputs)


def load():
    """Load and return the model, the first argument of predict(). Called once per worker at startup."""
    return mlflow.pyfunc.load_model(FOLDER)


def predict(model, inputs):
    """Return the outputs. `inputs` is a DataFrame if the signature has columns, otherwise arrays by name."""
    if isinstance(inputs, pd.DataFrame):
        inputs.columns = SIGNATURE.inputs.input_names()
    elif isinstance(inputs, dict) and not SIGNATURE.inputs.has_input_names():
        inputs = inputs["input-1"]
    try:
        return model.predict(inputs)
    except (
        mlflow.MlflowException
    ) as error:  # the signature does not allow the input, and the context has the reason
        raise InvalidInput(
            "data does not match the signature", got=str(error.__context__ or error)
        ) from None


predict.__annotations__["inputs"] = (
    dict[str, np.ndarray] if SIGNATURE.inputs.is_tensor_spec() else pd.DataFrame
)
