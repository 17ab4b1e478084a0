"""The calls of GRPCInferenceService (G1, T1, T2), and the table of errors to gRPC statuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message

from app.dataplane import DataPlane
from app.errors import (
    InferenceError,
    InvalidInput,
    ModelError,
    NotFound,
    NotReady,
    TooLarge,
    UnsupportedCoding,
    kind_of,
)
from grpc_service import converters, messages

STATUS: dict[type[InferenceError], grpc.StatusCode] = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    TooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UnsupportedCoding: grpc.StatusCode.UNIMPLEMENTED,
    ModelError: grpc.StatusCode.INTERNAL,
    NotReady: grpc.StatusCode.UNAVAILABLE,
}

logger = logging.getLogger(__name__)


class InferenceServicer:
    """One method a call, from request message to response message, raising InferenceError."""

    def __init__(self, plane: DataPlane):
        self.plane = plane

    def ServerLive(self, request: Message) -> Message:  # noqa: N802 - the calls keep the protocol's names
        return messages.ServerLiveResponse(live=True)

    def ServerReady(self, request: Message) -> Message:  # noqa: N802
        return messages.ServerReadyResponse(ready=self.plane.ready)

    def ModelReady(self, request: Any) -> Message:  # noqa: N802
        return messages.ModelReadyResponse(ready=self.plane.model_ready(request.name, request.version))

    def ServerMetadata(self, request: Message) -> Message:  # noqa: N802
        plane = self.plane
        return messages.ServerMetadataResponse(name=plane.name, version=plane.version, extensions=plane.extensions)

    def ModelMetadata(self, request: Any) -> Message:  # noqa: N802
        return converters.write_metadata(self.plane.metadata(request.name, request.version))

    def ModelInfer(self, request: Any) -> Message:  # noqa: N802
        self.plane.metadata(request.model_name, request.model_version)  # told before what else is wrong
        response = self.plane.infer(converters.read_request(request))
        return converters.write_response(response, raw=bool(request.raw_input_contents) or not request.inputs)

    def ModelConfig(self, request: Any) -> Message:  # noqa: N802
        return ParseDict({"config": self.plane.config(request.name, request.version)}, messages.ModelConfigResponse())

    def RepositoryIndex(self, request: Any) -> Message:  # noqa: N802
        return messages.RepositoryIndexResponse(models=self.plane.index(request.ready))


def handlers(servicer: InferenceServicer) -> grpc.GenericRpcHandler:
    """What grpcio serves `servicer` by: a handler of bytes for each call that the proto names."""
    return grpc.method_handlers_generic_handler(
        messages.SERVICE_NAME,
        {
            method.name: grpc.unary_unary_rpc_method_handler(
                answering(getattr(servicer, method.name), messages.message(method.input_type.name))
            )
            for method in messages.SERVICE.methods
        },
    )


def answering(call: Callable[[Any], Message], request_class: Any) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    """`call` from bytes to bytes, its errors as statuses. Parsing in here makes a malformed message one of them."""

    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return call(request_class.FromString(body)).SerializeToString()
        except DecodeError as error:
            code, text = grpc.StatusCode.INVALID_ARGUMENT, f"the message is not a {request_class.__name__}: {error}"
        except InferenceError as error:
            status: Any = kind_of(error, STATUS)
            code, text = status, str(error)
        except Exception as error:
            logger.exception("%s failed", call.__name__)
            code, text = grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}"
        return context.abort(code, text)

    return answer
