"""The model as an MLServer runtime: mlserver start conformance/servers/mlserver"""

from __future__ import annotations

import asyncio

from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput

from conformance.model import echo, output_of


class Echo(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        data = {tensor.name: tensor.data.root for tensor in payload.inputs}
        outputs = await asyncio.to_thread(echo, data)
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[
                ResponseOutput(
                    name=output_of(tensor.name),
                    datatype=tensor.datatype,
                    shape=tensor.shape,
                    data=outputs[output_of(tensor.name)],
                )
                for tensor in payload.inputs
                if output_of(tensor.name) in outputs
            ],
        )
