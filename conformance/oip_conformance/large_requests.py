"""Requests of an exact size, in each form. One tensor has almost all of the bytes, and the response is small."""

from __future__ import annotations

import json
from typing import Any

from oip_conformance.binary_requests import LENGTH
from oip_conformance.messages import ModelInferRequest
from oip_conformance.model import NAME
from oip_conformance.wires import sized

HEAD = 512  # bytes for the rest of a request
# The model returns this input as the output that is requested.
SMALL: dict[str, Any] = {"name": "fp32_in", "datatype": "FP32", "shape": [1]}
OUTPUTS = [{"name": "fp32_out"}]


def large_request(form: str, size: int, model: str = NAME) -> tuple[bytes, dict[str, str]]:
    """Return a request of `size` bytes, and its HTTP headers."""
    length, small = size - HEAD, {**SMALL, "data": [0]}
    if form == "rest json":
        start = f'{{"inputs": [{json.dumps(small)}, {{"name": "bytes_in", "datatype": "BYTES", "shape": [1], "data": ["'
        end = f'"]}}], "outputs": {json.dumps(OUTPUTS)}}}'
        return f"{start}{'x' * length}{end}".ljust(size).encode(), {}
    tensor: dict[str, Any] = {"name": "uint8_in", "datatype": "UINT8", "shape": [length]}
    if form == "rest binary":
        tensor["parameters"] = {"binary_data_size": length}
        head = json.dumps({"inputs": [small, tensor], "outputs": OUTPUTS}).ljust(HEAD).encode()
        return head + bytes(length), {LENGTH: str(HEAD)}
    if form == "grpc raw":
        request = ModelInferRequest(
            model_name=model, inputs=[SMALL, tensor], raw_input_contents=[bytes(4), bytes(length)]
        )
    else:
        tensor = {
            "name": "bytes_in",
            "datatype": "BYTES",
            "shape": [1],
            "contents": {"bytes_contents": [bytes(length)]},
        }
        request = ModelInferRequest(
            model_name=model, inputs=[{**SMALL, "contents": {"fp32_contents": [0]}}, tensor]
        )
    request.outputs.add(**OUTPUTS[0])
    return sized(request, size), {}
