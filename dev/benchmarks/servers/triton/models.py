"""The models for Triton's Python backend."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as triton

from dev.benchmarks.servers import models


class Linear:
    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        return [self.respond(request) for request in requests]

    def respond(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        x = triton.get_input_tensor_by_name(request, "x").as_numpy()
        return triton.InferenceResponse([triton.Tensor("y", self.compute(x))])

    def compute(self, x: np.ndarray) -> np.ndarray:
        return models.linear(x)


class Echo(Linear):
    def compute(self, x: np.ndarray) -> np.ndarray:
        return x
