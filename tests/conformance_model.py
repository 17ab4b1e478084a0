"""The model of the conformance suite. It returns its inputs: `NAME_in` as `NAME_out`.

`make conformance` serves it instead of app/predict.py, with the rest of this project's code. All
inputs are optional. The output of an absent input is empty.
"""

import sys
import time

import numpy as np
from flask import Flask

from app import create_app
from app.api import MetadataTensor, ModelMetadata
from app.protocol.datatypes import DATATYPES

# Name without suffix, datatype and shape. -1 is a dimension of any size.
TENSORS = [
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

INPUTS = []
OUTPUTS = []
for name, datatype, shape in TENSORS:
    INPUTS.append(MetadataTensor(f"{name}_in", datatype, shape))
    OUTPUTS.append(MetadataTensor(f"{name}_out", datatype, shape))
# The suite expects these inputs last.
INPUTS.append(MetadataTensor("fail_in", "BYTES", [-1]))
INPUTS.append(MetadataTensor("delay_in", "FP32", [-1]))

METADATA = ModelMetadata(
    name="conformance",
    version="1",
    platform="echo",
    inputs=INPUTS,
    outputs=OUTPUTS,
    properties={"framework": "numpy"},
)


def load():
    return None


def predict(
    model,
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
    bf16_in=None,
    fp32_in=None,
    fp64_in=None,
    bytes_in=None,
    grid_in=None,
    cube_in=None,
    pairs_in=None,
    column_in=None,
    fail_in=None,
    delay_in=None,
):
    inputs = locals()
    if fail_in is not None and len(fail_in):
        message = fail_in[0]
        if isinstance(message, bytes):  # otherwise, it is str, because the client sent this type
            message = message.decode()
        raise ValueError(message)
    if delay_in is not None and len(delay_in):
        time.sleep(float(delay_in[0]))

    outputs = {}
    for name, datatype, shape in TENSORS:
        value = inputs[f"{name}_in"]
        if value is None:
            value = np.empty([max(size, 0) for size in shape], DATATYPES[datatype].dtype)
        outputs[f"{name}_out"] = value
    return outputs


def create_service() -> Flask:
    return create_app(module=sys.modules[__name__])
