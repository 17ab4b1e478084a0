"""The model, any pyfunc that MLflow has saved with a signature, which METADATA follows.

What its requirements.txt names goes into install_requires in setup.cfg. With PRELOAD=on another signature takes a
restart; HUP brings a new model of the same.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pandas as pd

from app.codecs import StringCodec
from app.codecs.arrays import datatype_name
from app.codecs.frames import encode_column
from app.config import read_settings
from app.errors import InvalidInput, SetupError
from app.types import MetadataTensor, ModelMetadata

# MLflow shall log as the service does, not call home, and keep what it warns of its own code to itself.
os.environ.setdefault("MLFLOW_CONFIGURE_LOGGING", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mlflow.pyfunc
    from mlflow.types import TensorSpec

# MLflow's types of columns: the datatypes of numbers, and the content types of BYTES.
NUMBERS = {"boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64"}
TEXTS = {"string": "str", "datetime": "datetime", "binary": "np"}

FOLDER = str(read_settings().model_file("MLmodel").parent)
MODEL = mlflow.models.Model.load(FOLDER)
SIGNATURE = MODEL.signature
if not (SIGNATURE and SIGNATURE.inputs and SIGNATURE.outputs):
    raise SetupError("the model's signature lacks inputs or outputs; mlflow.models.infer_signature() makes one")


def declared(schema, kind: str) -> list[MetadataTensor]:
    """What METADATA says of a schema; what has no name there is input-1, output-1, and so on."""
    tensors = []
    for number, spec in enumerate(schema, 1):
        name, column = f"{kind}-{number}" if spec.name in (None, "") else str(spec.name), repr(spec.type)
        if isinstance(spec, TensorSpec):
            text = "str" if spec.type.kind in "OU" else None
            tensors.append(MetadataTensor(name, datatype_name(spec.type), list(spec.shape), text))
        elif column in NUMBERS:
            tensors.append(MetadataTensor(name, NUMBERS[column], [-1]))
        else:  # lists and objects are JSON
            tensors.append(MetadataTensor(name, "BYTES", [-1], TEXTS.get(column, "pd_json")))
    return tensors


METADATA = ModelMetadata(
    name="mass",
    version="1",
    platform="mlflow_pyfunc",
    inputs=declared(SIGNATURE.inputs, "input"),
    outputs=declared(SIGNATURE.outputs, "output"),
)


def by_input(given) -> dict | None:
    """The input example that MLflow keeps beside a model, as values by input; None where it is no table or tensors."""
    names = SIGNATURE.inputs.input_names()  # numbers where there are none
    if isinstance(given, pd.DataFrame):
        given = {name: encode_column(column, StringCodec)[1] for name, column in given.items()}
    elif isinstance(given, np.ndarray):
        given = {names[0]: given}
    if not isinstance(given, dict) or given.keys() != set(names):
        return None
    return {tensor.name: given[name] for tensor, name in zip(METADATA.inputs, names, strict=True)}


# What the service warms up with, and shows at its start.
EXAMPLE = by_input(MODEL.load_input_example(FOLDER))


def load():
    """Runs once in each worker, before it is ready. What it returns is predict()'s first argument."""
    return mlflow.pyfunc.load_model(FOLDER)


def predict(model, inputs):
    """A DataFrame for a signature of columns, arrays for one of tensors. Several threads may be in here at once."""
    if isinstance(inputs, pd.DataFrame):
        inputs.columns = SIGNATURE.inputs.input_names()
    elif isinstance(inputs, dict) and not SIGNATURE.inputs.has_input_names():
        inputs = inputs["input-1"]
    try:
        return model.predict(inputs)
    except mlflow.MlflowException as error:  # what the signature does not allow; its reason is what went before
        raise InvalidInput(f"data: {error.__context__ or error}") from None


predict.__annotations__["inputs"] = dict[str, np.ndarray] if SIGNATURE.inputs.is_tensor_spec() else pd.DataFrame
