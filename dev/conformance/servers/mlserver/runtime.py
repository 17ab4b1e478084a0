"""The model as an MLServer runtime: mlserver start dev/conformance/servers/mlserver"""

from __future__ import annotations

import asyncio

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput

from oip_conformance.model import echo, output_of


class Echo(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        datatypes = {output_of(tensor.name): tensor.datatype for tensor in payload.inputs}
        arrays = {tensor.name: self.array(tensor) for tensor in payload.inputs}
        echoed = await asyncio.to_thread(echo, arrays)
        outputs = [
            # NumpyCodec would change [N] to [N,1], and NaN to null, which gRPC does not support.
            ResponseOutput(
                name=name, datatype=datatypes[name], shape=array.shape, data=array.ravel().tolist()
            )
            for name, array in echoed.items()
        ]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)

    def array(self, tensor: RequestInput) -> np.ndarray:
        if tensor.datatype != "BYTES":
            return self.decode(tensor, default_codec=NumpyCodec)
        # NumpyCodec would split an element from gRPC into several.
        elements = tensor.data.root
        if tensor.parameters and tensor.parameters.content_type:
            # MLServer's gRPC messages need bytes.
            elements = [
                each.encode() if isinstance(each, str) else each for each in self.decode(tensor)
            ]
        return np.array(elements, object).reshape(tensor.shape)
