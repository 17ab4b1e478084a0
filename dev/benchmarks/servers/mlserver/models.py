"""The models as MLServer runtimes, with its own codecs."""

from __future__ import annotations

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, PandasCodec
from mlserver.types import InferenceRequest, InferenceResponse

from dev.benchmarks.servers import models


class Linear(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("y", self.compute(x))]
        )

    def compute(self, x: np.ndarray) -> np.ndarray:
        return models.linear(x)


class Echo(Linear):
    def compute(self, x: np.ndarray) -> np.ndarray:
        return x


class Sums(Linear):
    def compute(self, x: np.ndarray) -> np.ndarray:
        return models.sums(x)


class Frame(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        y = models.frame_scores(self.decode_request(payload, default_codec=PandasCodec))
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
