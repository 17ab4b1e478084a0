"""The same requests and responses over gRPC, for clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import grpc

from app.protocol.types import InferenceRequest, InferenceResponse
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
    """Return the response of `model_name`. `timeout` is in seconds, and `metadata` may contain an API key.

    Raise grpc.RpcError for an error of the server, and InvalidInput if a tensor has no such form.
    """
    call = channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    message = converters.write_request(replace(request, model_name=model_name), raw)
    return converters.read_response(call(message, timeout=timeout, metadata=metadata))
