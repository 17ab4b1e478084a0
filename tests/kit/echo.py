"""The model of the conformance suite in this service: gunicorn 'tests.kit.echo:create()'"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.datatypes import DATATYPES
from app.protocol.types import MetadataTensor, ModelMetadata
from oip_conformance.model import INPUTS, NAME, OUTPUTS, VERSION, echo

METADATA = ModelMetadata(
    NAME,
    VERSION,
    "echo",
    inputs=[MetadataTensor(*tensor) for tensor in INPUTS],
    outputs=[MetadataTensor(*tensor) for tensor in OUTPUTS],
    properties={"framework": "numpy"},
)
EMPTY = {
    name: np.empty([max(dimension, 0) for dimension in shape], DATATYPES[datatype].dtype)
    for name, datatype, shape in OUTPUTS
}


def predict(
    model: Any,
    bool_in: Any = None,
    uint8_in: Any = None,
    uint16_in: Any = None,
    uint32_in: Any = None,
    uint64_in: Any = None,
    int8_in: Any = None,
    int16_in: Any = None,
    int32_in: Any = None,
    int64_in: Any = None,
    fp16_in: Any = None,
    bf16_in: Any = None,
    fp32_in: Any = None,
    fp64_in: Any = None,
    bytes_in: Any = None,
    grid_in: Any = None,
    cube_in: Any = None,
    pairs_in: Any = None,
    column_in: Any = None,
    fail_in: Any = None,
    delay_in: Any = None,
) -> dict[str, np.ndarray]:
    sent = {
        name: value
        for name, value in locals().items()
        if name.endswith("_in") and value is not None
    }
    return {**EMPTY, **echo(sent)}


def create() -> Flask:
    return create_app(
        module=SimpleNamespace(
            __name__=__name__, METADATA=METADATA, load=lambda: None, predict=predict
        )
    )
