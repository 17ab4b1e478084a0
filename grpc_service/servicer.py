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
    """One method a call, from request to response, raising InferenceError; those of ModelInfer are bytes."""

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

    def ModelInfer(self, body: bytes) -> bytes:  # noqa: N802
        message, raws = converters.parse_request(body)
        self.plane.metadata(message.model_name, message.model_version)  # told before what else is wrong
        response = self.plane.infer(converters.read_request(message, raws))
        return converters.write_response(response, raw=bool(raws) or not message.inputs)

    def ModelConfig(self, request: Any) -> Message:  # noqa: N802
        return ParseDict({"config": self.plane.config(request.name, request.version)}, messages.ModelConfigResponse())

    def RepositoryIndex(self, request: Any) -> Message:  # noqa: N802
        return messages.RepositoryIndexResponse(models=self.plane.index(request.ready))


def handlers(servicer: InferenceServicer) -> grpc.GenericRpcHandler:
    """What grpcio serves `servicer` by: a handler of bytes for each call that the proto names."""
    return grpc.method_handlers_generic_handler(
        messages.SERVICE_NAME,
        {
            each.name: grpc.unary_unary_rpc_method_handler(answering(each.input_type.name, call_of(servicer, each)))
            for each in messages.SERVICE.methods
        },
    )


def call_of(servicer: InferenceServicer, method: Any) -> Callable[[bytes], bytes]:
    """The servicer's method from bytes to bytes."""
    call, request_class = getattr(servicer, method.name), messages.message(method.input_type.name)
    if method.name == "ModelInfer":
        return call
    return lambda body: call(request_class.FromString(body)).SerializeToString()


def answering(kind: str, call: Callable[[bytes], bytes]) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    """`call`, its errors as statuses, of which a malformed message of that `kind` is one."""

    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return call(body)
        except DecodeError as error:
            code, text = grpc.StatusCode.INVALID_ARGUMENT, f"the message is not a {kind}: {error}"
        except InferenceError as error:
            status: Any = kind_of(error, STATUS)
            code, text = status, str(error)
        except Exception as error:
            logger.exception("%s failed", kind.removesuffix("Request"))
            code, text = grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}"
        return context.abort(code, text)

    return answer
