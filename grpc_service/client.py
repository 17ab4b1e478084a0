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
    """Send `request` to `model_name` and return the response.

    The tensors are sent as bytes, or as lists of values if `raw` is False. `timeout` is in seconds.
    `metadata` are headers of the call, such as an API key. Raise grpc.RpcError if the call fails,
    and InvalidInput if protobuf cannot represent a value.
    """
    # Without serializers, the call sends and returns bytes.
    call = channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    body = converters.write_request(replace(request, model_name=model_name), raw=raw)
    response_body = call(body, timeout=timeout, metadata=metadata)
    return converters.read_response(response_body)
