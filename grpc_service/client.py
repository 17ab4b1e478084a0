"""The same requests and responses over gRPC, for clients."""

from __future__ import annotations

import grpc

from app.types import InferenceRequest, InferenceResponse
from grpc_service import converters, messages


def infer(
    channel: grpc.Channel, model_name: str, request: InferenceRequest, *, raw: bool = True, timeout: float | None = None
) -> InferenceResponse:
    """The answer of `model_name` behind `channel`; `timeout` in seconds.

    Raises grpc.RpcError where the server refuses, InvalidInput where a tensor has no such form.
    """
    message = converters.write_request(request, raw)
    message.model_name = model_name
    call = channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    answer = call(message.SerializeToString(), timeout=timeout)
    return converters.read_response(messages.ModelInferResponse.FromString(answer))
