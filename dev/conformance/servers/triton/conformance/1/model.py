"""The model for Triton's Python backend."""

from __future__ import annotations

import sys
from pathlib import Path

import triton_python_backend_utils as pb_utils

# Triton ignores PYTHONPATH.
sys.path.append(str(Path(__file__).resolve().parents[6] / "conformance"))

from oip_conformance.model import echo


class TritonPythonModel:
    def execute(
        self, requests: list[pb_utils.InferenceRequest]
    ) -> list[pb_utils.InferenceResponse]:
        return [self.respond(request) for request in requests]

    def respond(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        try:
            echoed = echo({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        tensors = [pb_utils.Tensor(name, array) for name, array in echoed.items()]
        return pb_utils.InferenceResponse(output_tensors=tensors)
