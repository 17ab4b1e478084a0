"""The calls of GRPCInferenceService (G1, T1, T2), and the table of errors to gRPC statuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from app.call import INFER, Call, serving
from app.dataplane import DataPlane
from app.errors import (
    Abandoned,
    InferenceError,
    InvalidInput,
    ModelError,
    NotFound,
    NotReady,
    Overloaded,
    TimedOut,
    TooLarge,
    Unauthenticated,
    UnsupportedCoding,
    status_of,
)
from app.journal import Journal
from grpc_service import converters, messages

STATUS: dict[type[InferenceError], grpc.StatusCode] = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    NotFound: grpc.StatusCode.NOT_FOUND,
    TooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UnsupportedCoding: grpc.StatusCode.UNIMPLEMENTED,
    ModelError: grpc.StatusCode.INTERNAL,
    NotReady: grpc.StatusCode.UNAVAILABLE,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
    Abandoned: grpc.StatusCode.CANCELLED,
}

REQUEST_ID = "x-request-id"
RETRY_AFTER = ("retry-after", "1")  # seconds. It distinguishes an overload from a message that is too large
logger = logging.getLogger(__name__)


class GrpcCall(Call):
    """A call by gRPC, whose id goes out with the answer."""

    protocol = "grpc"

    def __init__(self, method: str, context: grpc.ServicerContext):
        get = dict(context.invocation_metadata()).get
        super().__init__(method, get(REQUEST_ID), get("traceparent"))
        if self.traceparent:
            self.tracestate = get("tracestate")
        self.context: Any = context
        context.set_trailing_metadata(((REQUEST_ID, self.id),))

    def time_remaining(self) -> float | None:
        return self.context.time_remaining()

    def is_active(self) -> bool:
        return self.context.is_active()

    def refuse(self, journal: Journal, status: grpc.StatusCode, text: str, log_text: str = "") -> Any:
        """End the call with an error, which grpcio raises. An overloaded service asks for a retry, as in REST."""
        context, self.context = self.context, None
        self.status, self.error = status.name, log_text or text
        if self.failure is Overloaded:
            context.set_trailing_metadata(((REQUEST_ID, self.id), RETRY_AFTER))
        journal.add(self)
        return context.abort(status, text)


class InferenceServicer:
    """One method per call, from request to response. They raise InferenceError. ModelInfer takes and returns bytes."""

    def __init__(self, plane: DataPlane, is_fast: bool = True):
        self.plane, self.is_fast = plane, is_fast
        self.is_stopping = False
        self.running: set[grpc.ServicerContext] = set()  # calls whose responses are not sent yet

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

    def ModelInfer(self, body: bytes, call: GrpcCall) -> bytes:  # noqa: N802
        call.received = len(body)
        self.plane.admission.check()
        message, raws = converters.parse_request(body, self.is_fast)
        self.plane.metadata(message.model_name, message.model_version)  # told before what else is wrong
        request = converters.read_request(message, raws)
        raw = bool(raws) or not message.inputs
        del body, message, raws  # large ones are let go before the model runs
        return converters.write_response(self.plane.infer(request, call), raw, self.is_fast)

    def ModelConfig(self, request: Any) -> Message:  # noqa: N802
        return messages.ModelConfigResponse(config=self.plane.config(request.name, request.version))

    def RepositoryIndex(self, request: Any) -> Message:  # noqa: N802
        return messages.RepositoryIndexResponse(models=self.plane.index(request.ready))


def handlers(servicer: InferenceServicer) -> grpc.GenericRpcHandler:
    """What grpcio serves `servicer` by: a handler of bytes for each call that the proto names."""
    return grpc.method_handlers_generic_handler(
        messages.SERVICE_NAME,
        {
            each.name: grpc.unary_unary_rpc_method_handler(answering(servicer, each), request_deserializer=held)
            for each in messages.SERVICE.methods
        },
    )


def held(body: bytes) -> list[bytes]:
    """What grpcio keeps until the answer is out, so that a body in it can be let go earlier."""
    return [body]


def work_of(servicer: InferenceServicer, method: Any) -> Callable[[bytes, GrpcCall], bytes]:
    """The servicer's method from bytes to bytes."""
    work, request_class = getattr(servicer, method.name), messages.message(method.input_type.name)
    if method.name == INFER:
        return work

    def answer(body: bytes, call: GrpcCall) -> bytes:
        call.received = len(body)
        return work(request_class.FromString(body)).SerializeToString()

    return answer


def answering(servicer: InferenceServicer, method: Any) -> Callable[[list[bytes], grpc.ServicerContext], bytes]:
    """The method of a held body, its errors as statuses, of which a malformed message is one."""
    work, journal, name, running = work_of(servicer, method), servicer.plane.journal, method.name, servicer.running

    def answer(held: list[bytes], context: grpc.ServicerContext) -> bytes:
        call = GrpcCall(name, context)
        serving.set((call,))
        running.add(context)
        if not context.add_callback(lambda: running.discard(context)):
            running.discard(context)
        try:
            if servicer.is_stopping:
                raise NotReady("this worker is stopping", remedy="retry")
            body = work(held.pop(), call)
            call.status, call.sent = "OK", len(body)
            if call.is_unread():
                call.status = "CANCELLED" if call.time_remaining() else "DEADLINE_EXCEEDED"
            call.context = None
            journal.add(call)
            return body
        except DecodeError as error:
            status, text = grpc.StatusCode.INVALID_ARGUMENT, f"the message is not a {method.input_type.name}: {error}"
            log_text = f"the message is not a {method.input_type.name}"
        except InferenceError as error:
            status, text, log_text = status_of(error, STATUS), str(error), error.log_text()
            call.failure = type(error)
        except BaseException as error:
            logger.exception("%s failed", name)
            status, text = grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}"
            log_text = text
        return call.refuse(journal, status, text, log_text)

    return answer
