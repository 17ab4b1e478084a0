"""The model in KServe's server: python -m dev.conformance.servers.kserve_model --http_port 8080 --grpc_port 8081"""

from __future__ import annotations

import asyncio
from typing import Any

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.utils.utils import generate_uuid

from oip_conformance.model import INPUTS, NAME, OUTPUTS, VERSION, echo, output_of


def described(tensors: list[tuple[str, str, list[int]]]) -> list[dict[str, Any]]:
    """Return the metadata of the tensors with a datatype that KServe supports."""
    return [
        {"name": name, "datatype": datatype, "shape": shape}
        for name, datatype, shape in tensors
        if datatype != "BF16"
    ]


class Echo(Model):
    def get_input_types(self) -> list[dict[str, Any]]:
        return described(INPUTS)

    def get_output_types(self) -> list[dict[str, Any]]:
        return described(OUTPUTS)

    async def predict(
        self, payload: InferRequest, headers: dict[str, str] | None = None
    ) -> InferResponse:
        echoed = await asyncio.to_thread(
            echo, {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
        )
        outputs = []
        for tensor in payload.inputs:
            if (name := output_of(tensor.name)) in echoed:
                output = InferOutput(name, tensor.shape, tensor.datatype, echoed[name])
                if (
                    payload.from_grpc
                ):  # the server would return an array as raw contents, even for a typed request
                    output.set_data_from_numpy(echoed[name], binary_data=payload.use_binary_outputs)
                outputs.append(output)
        return InferResponse(
            response_id=payload.id or generate_uuid(),
            model_name=self.name,
            model_version=VERSION,
            infer_outputs=outputs,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


if __name__ == "__main__":
    model = Echo(NAME)
    model.load()
    ModelServer().start([model])
