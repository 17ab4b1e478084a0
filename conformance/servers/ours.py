"""This repository's service with the model: gunicorn 'conformance.servers.ours:create()'"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.datatypes import DATATYPES
from app.types import MetadataTensor, ModelMetadata
from conformance.model import INPUTS, NAME, OUTPUTS, VERSION, echo

METADATA = ModelMetadata(
    NAME,
    VERSION,
    "echo",
    inputs=[MetadataTensor(*tensor) for tensor in INPUTS],
    outputs=[MetadataTensor(*tensor) for tensor in OUTPUTS],
)
EMPTY = {
    name: np.empty([max(dimension, 0) for dimension in shape], DATATYPES[datatype].dtype)
    for name, datatype, shape in OUTPUTS
}


def predict(
    model: Any,
    bool_in=None,
    uint8_in=None,
    uint16_in=None,
    uint32_in=None,
    uint64_in=None,
    int8_in=None,
    int16_in=None,
    int32_in=None,
    int64_in=None,
    fp16_in=None,
    fp32_in=None,
    fp64_in=None,
    bytes_in=None,
    grid_in=None,
    cube_in=None,
    pairs_in=None,
    column_in=None,
    fail_in=None,
    delay_in=None,
) -> dict[str, np.ndarray]:
    sent = {name: value for name, value in locals().items() if name.endswith("_in") and value is not None}
    return {**EMPTY, **echo(sent)}


def create() -> Flask:
    return create_app(module=SimpleNamespace(__name__=__name__, METADATA=METADATA, load=lambda: None, predict=predict))
