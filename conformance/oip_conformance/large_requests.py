"""Requests of an exact size, in each form.

One tensor has almost all of the bytes. The other one, `fp32_in`, is the one whose output is
requested, so that the response is small.
"""

from __future__ import annotations

import json
from typing import Any

from oip_conformance.inputs import json_input
from oip_conformance.messages import ModelInferRequest
from oip_conformance.model import NAME
from oip_conformance.wires import HEADER_LENGTH, message_of_size

# Bytes for the rest of a request.
HEAD_LENGTH = 512
FP32_INPUT: dict[str, Any] = {"name": "fp32_in", "datatype": "FP32", "shape": [1]}
FP32_OUTPUT = {"name": "fp32_out"}


def large_request(form: str, size: int, model: str = NAME) -> tuple[bytes, dict[str, str]]:
    """Return a request of `size` bytes, and its HTTP headers."""
    if form == "rest json":
        return large_json(size), {}
    if form == "rest binary":
        return large_binary(size), {HEADER_LENGTH: str(HEAD_LENGTH)}
    if form == "grpc typed":
        return large_typed(size, model), {}
    return large_raw(size, model), {}


def large_json(size: int) -> bytes:
    text = "x" * (size - HEAD_LENGTH)
    envelope = {
        "inputs": [{**FP32_INPUT, "data": [0]}, json_input("bytes_in", "BYTES", [1], [text])],
        "outputs": [FP32_OUTPUT],
    }
    return json.dumps(envelope).encode().ljust(size)


def large_binary(size: int) -> bytes:
    length = size - HEAD_LENGTH
    tensor = {
        "name": "uint8_in",
        "datatype": "UINT8",
        "shape": [length],
        "parameters": {"binary_data_size": length},
    }
    envelope = {"inputs": [{**FP32_INPUT, "data": [0]}, tensor], "outputs": [FP32_OUTPUT]}
    return json.dumps(envelope).encode().ljust(HEAD_LENGTH) + bytes(length)


def large_raw(size: int, model: str) -> bytes:
    length = size - HEAD_LENGTH
    tensor = {"name": "uint8_in", "datatype": "UINT8", "shape": [length]}
    request = ModelInferRequest(
        model_name=model,
        inputs=[FP32_INPUT, tensor],
        outputs=[FP32_OUTPUT],
        raw_input_contents=[bytes(4), bytes(length)],
    )
    return message_of_size(request, size)


def large_typed(size: int, model: str) -> bytes:
    length = size - HEAD_LENGTH
    tensor = {
        "name": "bytes_in",
        "datatype": "BYTES",
        "shape": [1],
        "contents": {"bytes_contents": [bytes(length)]},
    }
    request = ModelInferRequest(
        model_name=model,
        inputs=[{**FP32_INPUT, "contents": {"fp32_contents": [0]}}, tensor],
        outputs=[FP32_OUTPUT],
    )
    return message_of_size(request, size)
