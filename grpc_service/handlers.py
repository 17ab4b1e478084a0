"""From grpcio to the servicer: handlers that create calls, and turn exceptions into gRPC statuses.

grpcio calls a handler in a thread of its pool. A handler creates the call, calls the servicer's
method, and records the end of the call for the observers:

    handler(body, context) -> GrpcCall -> method of InferenceServicer -> response or status

status_and_log() is the one place that knows the gRPC status of each exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, NoReturn

import grpc
from google.protobuf.message import DecodeError

from app.inference.call import INFER, current_calls
from app.inference.memory_budget import MemoryBudget, not_enough_memory
from app.observability.observer_queue import ObserverQueue
from app.protocol import errors
from grpc_service import messages
from grpc_service.compression import decompress_small
from grpc_service.grpc_call import OPERATIONS, RETRY_AFTER, GrpcCall
from grpc_service.servicer import InferenceServicer

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
    # Such as the error of another server that predict() calls.
    errors.InferenceError: grpc.StatusCode.INTERNAL,
}
logger = logging.getLogger(__name__)

# Takes and returns serialized messages.
BytesMethod = Callable[[bytes, GrpcCall], bytes]


class Status(NamedTuple):
    """A gRPC status: its code, the message for the client, and the one for the log."""

    code: grpc.StatusCode
    text: str
    log_text: str


def status_and_log(error: BaseException, method: Any) -> Status:
    """Return the status for an exception of a method, and log an unexpected one.

    `method` is a descriptor of the protocol. Call this only inside `except`.
    """
    if isinstance(error, errors.InferenceError):
        return Status(errors.status_of(error, STATUS), str(error), error.log_text())
    if isinstance(error, DecodeError):
        problem = f"Invalid {method.input_type.name} message."
        return Status(grpc.StatusCode.INVALID_ARGUMENT, f"{problem} Got {error}.", problem)
    logger.exception("%s failed", method.name)
    problem = f"Internal error: {type(error).__name__}."
    return Status(grpc.StatusCode.INTERNAL, problem, problem)


class CallTracker:
    """The calls in flight, and whether new ones are rejected."""

    def __init__(self) -> None:
        self._contexts: set[grpc.ServicerContext] = set()
        self._is_stopping = False

    def add(self, context: grpc.ServicerContext) -> None:
        """Track a call until its end. Raise Unavailable after reject_calls()."""
        if self._is_stopping:
            raise errors.Unavailable("worker is shutting down", remedy="retry the call")
        self._contexts.add(context)
        # grpcio calls this in its event thread, where a C function takes less time than a lambda.
        is_running = context.add_callback(partial(self._contexts.discard, context))
        if not is_running:  # it has ended, and grpcio calls no callback
            self._contexts.discard(context)

    def reject_calls(self) -> None:
        self._is_stopping = True

    @property
    def contexts(self) -> list[grpc.ServicerContext]:
        """grpcio's contexts of the calls in flight."""
        return list(self._contexts)


class ReceivedMessage:
    """A serialized request that waits for a thread. A large one reserves memory meanwhile.

    grpcio keeps a reference to the argument of a handler until the response is sent. The handler
    therefore takes the bytes out of this object, so that their memory is free before predict()
    runs.

    size: the number of bytes
    """

    __slots__ = ("_body", "_budget", "_is_rejected", "_reserved_bytes", "size")

    def __init__(self, body: bytes, budget: MemoryBudget):
        self.size = len(body)
        self._body = body
        self._budget = budget
        self._reserved_bytes = 0
        self._is_rejected = False
        if budget.is_counted(self.size):
            self._reserve()

    def _reserve(self) -> None:
        try:
            self._budget.reserve(self.size)
        except errors.Overloaded:
            self._is_rejected = True  # take() raises an error, because grpcio could not report it
            self._body = b""
        else:
            self._reserved_bytes = self.size

    def take(self) -> bytes:
        """Return the request. Raise Overloaded if there was no memory for it. Call this once."""
        if self._is_rejected:
            raise not_enough_memory()
        body = self._body
        self._body = b""
        if self._reserved_bytes:
            self._budget.release(self._reserved_bytes)
            self._reserved_bytes = 0
        return body

    def __del__(self) -> None:
        # An interceptor of the owner can reject a call whose message has arrived.
        if self._reserved_bytes:
            self._budget.drop(self._reserved_bytes)


def make_handlers(
    servicer: InferenceServicer,
    tracker: CallTracker,
    observer_queue: ObserverQueue,
    budget: MemoryBudget,
) -> grpc.GenericRpcHandler:
    """Return the handler for all methods in the proto."""
    handlers = {}
    for method in messages.SERVICE.methods:
        handler = Handler(servicer, method, tracker=tracker, observer_queue=observer_queue)
        handlers[method.name] = grpc.unary_unary_rpc_method_handler(
            handler, request_deserializer=partial(ReceivedMessage, budget=budget)
        )
    return grpc.method_handlers_generic_handler(messages.SERVICE_NAME, handlers)


class Handler:
    """Handles the calls of one gRPC method."""

    def __init__(
        self,
        servicer: InferenceServicer,
        method: Any,
        tracker: CallTracker,
        observer_queue: ObserverQueue,
    ):
        self._method = method
        self._run = _to_bytes_method(servicer, method)
        self._tracker = tracker
        self._observer_queue = observer_queue

    def __call__(self, message: ReceivedMessage, context: grpc.ServicerContext) -> bytes:
        call = GrpcCall(self._method.name, context)
        current_calls.set((call,))  # grpcio runs each call in a context of its own
        failure: Status | None = None
        try:
            self._tracker.add(context)
            call.outcome.set_request_bytes(message.size)
            body = self._run(message.take(), call)
        except BaseException as error:  # includes SystemExit and panics of Rust extensions
            failure = status_and_log(error, self._method)
            call.outcome.fail(type(error), failure.log_text)
        if failure is not None:  # after `except`, so that grpcio's exception does not refer to it
            record_and_abort(call, context, status=failure, observer_queue=self._observer_queue)

        call.outcome.succeed("OK", len(body))
        if call.additions.headers:
            call.set_trailing_metadata()
        if call.is_abandoned():
            # grpcio cancels a call at its deadline, too.
            is_late = call.client_deadline() <= monotonic()
            call.outcome.set_status("DEADLINE_EXCEEDED" if is_late else "CANCELLED")
        self._observer_queue.add(call)
        return body


def record_and_abort(
    call: GrpcCall, context: grpc.ServicerContext, status: Status, observer_queue: ObserverQueue
) -> NoReturn:
    """Pass a failed call to the observers, and end it with the status.

    Like grpcio's abort(), this raises an exception, which the handler must not catch.
    """
    call.outcome.set_status(status.code.name)
    if call.outcome.error_class is errors.Overloaded:
        call.set_trailing_metadata(RETRY_AFTER)
    else:
        call.set_trailing_metadata()
    observer_queue.add(call)
    # abort() raises. `raise` only tells the type checker that nothing follows.
    raise context.abort(status.code, status.text)


def _to_bytes_method(servicer: InferenceServicer, method: Any) -> BytesMethod:
    """Return the servicer's method as a function of serialized messages."""
    if OPERATIONS[method.name] == INFER:
        return servicer.ModelInfer  # it parses and serializes its messages itself
    respond = getattr(servicer, method.name)
    request_class = messages.message(method.input_type.name)

    def run(body: bytes, call: GrpcCall) -> bytes:
        request = request_class.FromString(decompress_small(body))
        response: bytes = respond(request).SerializeToString()
        return response

    return run
