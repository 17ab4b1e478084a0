"""Inputs of the model, and the small valid input that most cases send."""

from __future__ import annotations

from typing import Any

from oip_conformance.model import input_of, output_of
from oip_conformance.wires import InputTuple, Output


def vector(datatype: str, values: list) -> InputTuple:
    """Return the input of one dimension that has this datatype."""
    return input_of(datatype), datatype, [len(values)], values


def json_input(name: str, datatype: str, shape: Any, values: Any) -> dict[str, Any]:
    """Return an input as JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": values}


def outputs_of(*inputs: InputTuple) -> dict[str, Output]:
    """Return the outputs that the model returns for these inputs, by name."""
    outputs = {}
    for name, datatype, shape, values in inputs:
        outputs[output_of(name)] = Output(datatype, shape, values)
    return outputs


SMALL_VALUES = [1.5, -2.0]
SMALL_INPUT = vector("FP32", SMALL_VALUES)
SMALL_JSON = json_input(*SMALL_INPUT)
SMALL_OUTPUTS = outputs_of(SMALL_INPUT)
