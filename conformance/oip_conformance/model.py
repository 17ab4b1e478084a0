"""The model for conformance tests, which returns its inputs.

All inputs are optional. The model returns `NAME_in` as `NAME_out`. If an input is missing, its
output is empty, or omitted if the server supports this. `fail_in` is the message of an exception
that the model raises, and `delay_in` is a delay in seconds. The model of a server without BF16 has
neither `bf16_in` nor `bf16_out`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

NAME = "conformance"
VERSION = "1"
DATATYPES = [
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
]
# Name, datatype and shape of a tensor. -1 is a variable dimension.
TensorSpec = tuple[str, str, list[int]]
# Inputs with the datatype INT32, without "_in", by their number of dimensions.
INPUT_OF_RANK = {1: "int32", 2: "grid", 3: "cube"}
# The returned tensors.
ECHOED_TENSORS: list[TensorSpec] = [
    ("bool", "BOOL", [-1]),
    ("uint8", "UINT8", [-1]),
    ("uint16", "UINT16", [-1]),
    ("uint32", "UINT32", [-1]),
    ("uint64", "UINT64", [-1]),
    ("int8", "INT8", [-1]),
    ("int16", "INT16", [-1]),
    ("int32", "INT32", [-1]),
    ("int64", "INT64", [-1]),
    ("fp16", "FP16", [-1]),
    ("bf16", "BF16", [-1]),
    ("fp32", "FP32", [-1]),
    ("fp64", "FP64", [-1]),
    ("bytes", "BYTES", [-1]),
    ("grid", "INT32", [-1, -1]),
    ("cube", "INT32", [-1, -1, -1]),
    ("pairs", "FP32", [-1, 2]),
    ("column", "INT32", [-1, 1]),
]
# Inputs that the model does not return.
CONTROL_INPUTS: list[TensorSpec] = [("fail_in", "BYTES", [-1]), ("delay_in", "FP32", [-1])]

INPUTS: list[TensorSpec] = []
OUTPUTS: list[TensorSpec] = []
for name, datatype, shape in ECHOED_TENSORS:
    INPUTS.append((f"{name}_in", datatype, shape))
    OUTPUTS.append((f"{name}_out", datatype, shape))
INPUTS += CONTROL_INPUTS


def input_of(datatype: str) -> str:
    """Return the name of the input of one dimension that has this datatype."""
    return f"{datatype.lower()}_in"


def output_of(input_name: str) -> str:
    """Return the name of the output of an input."""
    return f"{input_name.removesuffix('_in')}_out"


def echo(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs by name. Values are lists or arrays of numbers, bytes or text."""
    fail = inputs.get("fail_in")
    if fail is not None and len(fail):
        message = fail[0]
        raise ValueError(message.decode() if isinstance(message, bytes) else message)
    delay = inputs.get("delay_in")
    if delay is not None and len(delay):
        time.sleep(float(delay[0]))

    outputs = {}
    for name, values in inputs.items():
        if name not in ("fail_in", "delay_in"):
            outputs[output_of(name)] = values
    return outputs
