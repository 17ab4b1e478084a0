"""Methods of GRPCInferenceService (G1, T1 to T3), and the gRPC status of each error."""

import logging
import re
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from app.inference.data_plane import DataPlane
from app.inference.request_context import INFER, Headers, RequestContext, current_contexts
from app.observability.observer_queue import ObserverQueue
from app.observability.statistics import Statistics
from app.protocol import errors
from grpc_service import converters, messages

STATUS: dict[type[errors.InferenceError], grpc.StatusCode] = {
    errors.InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.PayloadTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.UnsupportedEncoding: grpc.StatusCode.UNIMPLEMENTED,
    errors.ModelError: grpc.StatusCode.INTERNAL,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.ClientDisconnected: grpc.StatusCode.CANCELLED,
}

REQUEST_ID = "x-request-id"
RETRY_AFTER = (
    "retry-after",
    "1",
)  # seconds. Distinguishes an overload from a message that is too large
# Operations by gRPC method. ModelMetadata is `model_metadata`.
OPERATIONS = {
    each.name: re.sub("(?<=.)(?=[A-Z])", "_", each.name).lower()
    for each in messages.SERVICE.methods
}
OPERATIONS |= {"ModelInfer": INFER}
logger = logging.getLogger(__name__)


class GrpcContext(RequestContext):
    """The context of a gRPC call. The trailing metadata of the response contains its id."""

    protocol = "grpc"

    def __init__(self, method: str, grpc_context: grpc.ServicerContext):
        get = dict(grpc_context.invocation_metadata()).get
        super().__init__(
            OPERATIONS.get(method, method),
            get(REQUEST_ID),
            get("traceparent", ""),
            get("tracestate", ""),
        )
        self.method = method
        self.grpc_context: Any = grpc_context
        self.set_metadata()

    @cached_property
    def headers(self) -> Headers:  # type: ignore[override]
        headers = Headers()
        headers.data.update(self.grpc_context.invocation_metadata())
        return headers

    @cached_property
    def client_address(self) -> str:  # type: ignore[override]
        """Return the IP address in grpcio's `ipv4:127.0.0.1:8081` or `ipv6:%5B::1%5D:8081`."""
        return unquote(self.grpc_context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")

    def set_metadata(self, *more: tuple[str, str]) -> None:
        """Set the trailing metadata of the response."""
        self.grpc_context.set_trailing_metadata(
            ((REQUEST_ID, self.id), *self.response_headers.items(), *more)
        )

    def span(self) -> tuple[str, dict[str, Any]]:
        name = f"{messages.SERVICE_NAME}/{self.method}"
        return name, {
            "rpc.system.name": "grpc",
            "rpc.method": name,
            "rpc.response.status_code": self.status,
        }

    def log_fields(self) -> tuple[str, dict[str, Any]]:
        return f"gRPC {self.method} {self.status}", {"grpc_status": self.status}

    def client_time_remaining(self) -> float | None:
        seconds: float = self.grpc_context.time_remaining()
        return (
            seconds if seconds < threading.TIMEOUT_MAX else None
        )  # grpcio returns a longer time without a deadline

    def is_active(self) -> bool:
        return bool(self.grpc_context.is_active())

    def fail(
        self, queue: ObserverQueue, status: grpc.StatusCode, text: str, log_text: str = ""
    ) -> NoReturn:
        """Abort the call with an error. abort() raises an exception. If overloaded, send `retry-after`, as in REST."""
        self.status, self.error = status.name, log_text or text
        self.set_metadata(*[RETRY_AFTER] if self.failure is errors.Overloaded else ())
        grpc_context, self.grpc_context = self.grpc_context, None
        queue.add(self)
        raise grpc_context.abort(status, text)


class InferenceServicer:
    """The methods of the service. They raise InferenceError. ModelInfer takes and returns serialized messages."""

    def __init__(self, plane: DataPlane, statistics: Statistics, without_copies: bool = True):
        self.plane, self.statistics, self.without_copies = plane, statistics, without_copies
        self.is_stopping = False
        self.running: set[grpc.ServicerContext] = set()  # calls in flight

    def ServerLive(self, request: Message) -> Message:  # noqa: N802 - methods have the protocol's names
        return messages.ServerLiveResponse(live=True)

    def ServerReady(self, request: Message) -> Message:  # noqa: N802
        return messages.ServerReadyResponse(ready=self.plane.is_ready)

    def ModelReady(self, request: Any) -> Message:  # noqa: N802
        return messages.ModelReadyResponse(
            ready=self.plane.is_model_ready(request.name, request.version)
        )

    def ServerMetadata(self, request: Message) -> Message:  # noqa: N802
        plane = self.plane
        return messages.ServerMetadataResponse(
            name=plane.name, version=plane.version, extensions=plane.extensions
        )

    def ModelMetadata(self, request: Any) -> Message:  # noqa: N802
        model = self.plane.model_metadata(request.name, request.version)
        model.pop("parameters", None)  # the request-level content type has no field
        parameters = [
            tensor.pop("parameters", {}) for tensor in (*model["inputs"], *model["outputs"])
        ]
        response = messages.ModelMetadataResponse(**model)
        for tensor, values in zip((*response.inputs, *response.outputs), parameters, strict=True):
            converters.write_parameters(tensor.parameters, values)
        return response

    def ModelInfer(self, body: bytes, context: GrpcContext) -> bytes:  # noqa: N802
        self.plane.admission.reject_if_full()
        message, raws = converters.parse_request(body, self.without_copies)
        # Report an unknown model before other errors.
        self.plane.metadata(message.model_name, message.model_version)
        request = converters.read_request(message, raws)
        raw = bool(raws) or not message.inputs
        del body, message, raws  # release a large request before predict() runs
        return converters.write_response(
            self.plane.infer(request, context), raw, self.without_copies
        )

    def ModelConfig(self, request: Any) -> Message:  # noqa: N802
        return messages.ModelConfigResponse(
            config=self.plane.model_config(request.name, request.version)
        )

    def RepositoryIndex(self, request: Any) -> Message:  # noqa: N802
        return messages.RepositoryIndexResponse(models=self.plane.repository_index(request.ready))

    def ModelStatistics(self, request: Any) -> Message:  # noqa: N802
        return messages.ModelStatisticsResponse(
            **self.statistics.read(request.name, request.version)
        )


def make_handlers(servicer: InferenceServicer) -> grpc.GenericRpcHandler:
    """Return the handler for all methods in the proto. Handlers take and return serialized messages.

    grpcio references a handler's argument until the response is sent. A list allows the handler to release the body.
    """
    handlers = {}
    for method in messages.SERVICE.methods:
        handle = make_handler(servicer, method)
        handlers[method.name] = grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=lambda body: [body]
        )
    return grpc.method_handlers_generic_handler(messages.SERVICE_NAME, handlers)


def to_bytes_method(
    servicer: InferenceServicer, method: Any
) -> Callable[[bytes, GrpcContext], bytes]:
    """Return a function that calls the servicer's method with a serialized request and serializes the response."""
    if OPERATIONS[method.name] == INFER:
        return servicer.ModelInfer
    work, request_class = getattr(servicer, method.name), messages.message(method.input_type.name)

    def run(body: bytes, context: GrpcContext) -> bytes:
        response: bytes = work(request_class.FromString(body)).SerializeToString()
        return response

    return run


def make_handler(
    servicer: InferenceServicer, method: Any
) -> Callable[[list[bytes], grpc.ServicerContext], bytes]:
    """Return the handler of a method. It converts exceptions, including DecodeError, to statuses."""
    work, name = to_bytes_method(servicer, method), method.name
    queue, running = servicer.plane.observer_queue, servicer.running

    def handle(held: list[bytes], grpc_context: grpc.ServicerContext) -> bytes:
        context = GrpcContext(name, grpc_context)
        current_contexts.set((context,))
        running.add(grpc_context)
        if not grpc_context.add_callback(lambda: running.discard(grpc_context)):
            running.discard(grpc_context)
        try:
            if servicer.is_stopping:
                raise errors.Unavailable("worker is shutting down", remedy="retry the call")
            context.received = len(held[0])
            body = work(held.pop(), context)
            context.status, context.sent = "OK", len(body)
            if context.response_headers:
                context.set_metadata()
            if context.is_abandoned():
                context.status = (
                    "DEADLINE_EXCEEDED" if context.client_time_remaining() == 0 else "CANCELLED"
                )
            context.grpc_context = None
            queue.add(context)
            return body
        except DecodeError as error:
            log_text, context.failure = f"Invalid {method.input_type.name} message.", type(error)
            status, text = grpc.StatusCode.INVALID_ARGUMENT, f"{log_text} Got {error}."
        except errors.InferenceError as error:
            status, text, log_text = errors.status_of(error, STATUS), str(error), error.log_text()
            context.failure = type(error)
        except BaseException as error:
            logger.exception("%s failed", name)
            status, text = grpc.StatusCode.INTERNAL, f"Internal error: {type(error).__name__}."
            log_text, context.failure = text, type(error)
        return context.fail(queue, status, text, log_text)

    return handle
