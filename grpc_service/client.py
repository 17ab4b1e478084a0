"""gRPC client for InferenceRequest and InferenceResponse."""

from collections.abc import Sequence
from dataclasses import replace

import grpc

from app.protocol.messages import InferenceRequest, InferenceResponse
from grpc_service import converters, messages


def infer(
    channel: grpc.Channel,
    model_name: str,
    request: InferenceRequest,
    *,
    raw: bool = True,
    timeout: float | None = None,
    metadata: Sequence[tuple[str, str]] = (),
) -> InferenceResponse:
    """Send `request` to `model_name` and return the response. `timeout` is in seconds, `metadata` can hold an API key.

    Raise grpc.RpcError if the call fails, and InvalidInput if protobuf cannot represent a tensor.
    """
    call = channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    message = converters.write_request(replace(request, model_name=model_name), raw)
    return converters.read_response(call(message, timeout=timeout, metadata=metadata))
