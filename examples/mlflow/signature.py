"""Convert MLflow's signatures to METADATA and input examples to EXAMPLE, and import MLflow without its side effects."""

import logging
import os
import warnings
from typing import Any

import numpy as np
import pandas as pd

from app.api import ConfigurationError, MetadataTensor
from app.codecs.arrays import datatype_name
from app.codecs.frames import encode_column
from app.protocol.errors import join_names

# MLflow must use the service's log and send no telemetry. Its warnings about its own code are hidden.
os.environ.setdefault("MLFLOW_CONFIGURE_LOGGING", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mlflow.pyfunc
    from mlflow.types import Schema, TensorSpec

logger = logging.getLogger(__name__)

__all__ = ["by_input", "declared", "mlflow", "read_model"]

# Types of MLflow columns: datatypes of numbers, and content types of BYTES.
NUMBERS = {
    "boolean": "BOOL",
    "integer": "INT32",
    "long": "INT64",
    "float": "FP32",
    "double": "FP64",
}
TEXTS = {"string": "str", "datetime": "datetime", "binary": "np"}


def read_model(folder: str) -> mlflow.models.Model:
    """Return the metadata of the model in `folder`. Raise ConfigurationError if it lacks inputs or outputs."""
    model = mlflow.models.Model.load(folder)
    if model.signature and model.signature.inputs and model.signature.outputs:
        return model
    raise ConfigurationError(
        "the model's signature lacks inputs or outputs; mlflow.models.infer_signature() makes one"
    )


def declared(schema: Schema, kind: str) -> list[MetadataTensor]:
    """Return the tensors of METADATA for a schema. Unnamed ones are called input-1, output-1 and so on."""
    tensors = []
    for number, spec in enumerate(schema, 1):
        name, column = (
            f"{kind}-{number}" if spec.name in (None, "") else str(spec.name),
            repr(spec.type),
        )
        if isinstance(spec, TensorSpec):
            text = "str" if spec.type.kind in "OU" else None
            tensors.append(MetadataTensor(name, datatype_name(spec.type), list(spec.shape), text))
        elif column in NUMBERS:
            tensors.append(MetadataTensor(name, NUMBERS[column], [-1]))
        else:  # lists and objects are JSON
            tensors.append(MetadataTensor(name, "BYTES", [-1], TEXTS.get(column, "pd_json")))
    return tensors


def by_input(given: Any, schema: Schema) -> dict[str, Any] | None:
    """Return the model's saved input example by input, or None with a warning if it does not match the signature."""
    names = schema.input_names()  # numbers for unnamed inputs
    if isinstance(given, pd.DataFrame):
        given = {
            name: encode_column(column, allow_null=True).array for name, column in given.items()
        }
    elif isinstance(given, np.ndarray):
        given = {names[0]: given}
    if not isinstance(given, dict) or given.keys() != set(names):
        if given is not None:
            what = join_names(given) if isinstance(given, dict) else type(given).__name__
            logger.warning(
                "the model's input_example has %s, its signature %s: left out",
                what,
                join_names(names),
            )
        return None
    return {
        tensor.name: given[name]
        for tensor, name in zip(declared(schema, "input"), names, strict=True)
    }
