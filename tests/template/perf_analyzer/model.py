"""Echo models with fixed shapes for perf_analyzer, which compares only such outputs: NAME_in is returned as NAME_out.

gunicorn 'tests.template.perf_analyzer.model:create()' or, without FP16 and BF16,
'tests.template.perf_analyzer.model:jsonable()'
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.datatypes import DATATYPES
from app.protocol.metadata import MetadataTensor
from tests.kit.models import model

# From an input in JSON, perf_analyzer sends only the first row.
SHAPE = [1, 3]


def predict(_: None, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.replace("_in", "_out"): array for name, array in inputs.items()}


def create(without: Container[str] = ()) -> Flask:
    names = [name for name in DATATYPES if name not in without]
    inputs = [MetadataTensor(f"{name.lower()}_in", name, SHAPE) for name in names]
    outputs = [MetadataTensor(f"{name.lower()}_out", name, SHAPE) for name in names]
    return create_app(module=model(inputs, outputs, predict))


def jsonable() -> Flask:
    """Return the model without FP16 and BF16, which perf_analyzer does not support in JSON."""
    return create(without=["FP16", "BF16"])
