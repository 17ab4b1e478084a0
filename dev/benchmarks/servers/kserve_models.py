"""The models in KServe's server: python -m dev.benchmarks.servers.kserve_models --http_port 8080 --grpc_port 8081"""

from __future__ import annotations

from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

from dev.benchmarks.servers import models


class Linear(Model):
    async def predict(self, payload: InferRequest, *_: Any) -> InferResponse:
        y = self.compute(payload.inputs[0].as_numpy())
        output = InferOutput("y", list(y.shape), "FP32", y)
        if payload.from_grpc:  # over REST, the server encodes the array
            output.set_data_from_numpy(y, binary_data=payload.use_binary_outputs)
        return InferResponse(
            payload.id or "1",
            self.name,
            [output],
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )

    def compute(self, x: np.ndarray) -> np.ndarray:
        return models.linear(x)


class Echo(Linear):
    def compute(self, x: np.ndarray) -> np.ndarray:
        return x


class Frame(Linear):
    async def predict(self, payload: InferRequest, *_: Any) -> InferResponse:
        y = models.frame_scores(payload.as_dataframe())
        output = InferOutput("y", list(y.shape), "FP64", y)
        return InferResponse(payload.id or "1", self.name, [output])


if __name__ == "__main__":
    made = [Linear("linear"), Echo("echo"), Frame("frame")]
    for model in made:
        model.load()
    ModelServer().start(made)
