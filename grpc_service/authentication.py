"""API key authentication for gRPC. Liveness and readiness checks need no key."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health_pb2

from app.config.api_keys import ApiKeys
from app.observability.observer_queue import ObserverQueue
from app.protocol.errors import InferenceError, Unauthenticated, status_of
from grpc_service.compression import decompress_small
from grpc_service.grpc_call import OPERATIONS, GrpcCall
from grpc_service.handlers import STATUS, Status, record_and_abort
from grpc_service.messages import SERVICE_NAME

OPEN_METHODS = {f"/{SERVICE_NAME}/{name}" for name in ("ServerLive", "ServerReady", "ModelReady")}
HEALTH = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"


class OpenHandler:
    """Handler of a method that needs no key. The pool limits messages for such methods strictly.

    grpcio has one limit for the messages of all methods, so it receives up to MAX_REQUEST_BYTES.
    deserialize() drops a large message as soon as grpcio passes it on.
    """

    is_open = True

    def __init__(self, handler: grpc.RpcMethodHandler, reject: Callable[..., NoReturn]):
        self._handle = handler.unary_stream or handler.unary_unary
        self._deserialize = handler.request_deserializer
        self._reject = reject

    def deserialize(self, body: bytes) -> Any:
        """Return the request, or an error for __call__(), because grpcio could not report it."""
        try:
            return self._deserialize(decompress_small(body))
        except InferenceError as error:
            return error.with_traceback(None)  # the traceback would keep the message in memory

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Any:
        if isinstance(request, InferenceError):
            self._reject(context, request)
        return self._handle(request, context)


class Rejection:
    """Handler that aborts the call. The pool calls it without a thread.

    It must be the handler of a stream, because those do not wait for a message.
    """

    is_rejection = True

    def __init__(self, reject: Callable[..., NoReturn], error: InferenceError):
        self._reject = reject
        self._error = error

    def __call__(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> None:
        self._reject(context, self._error)


class ApiKeyInterceptor(grpc.ServerInterceptor):
    """Rejects calls without a valid key before reading the message.

    Reflection and unknown methods also need a key.
    """

    def __init__(self, keys: ApiKeys, observer_queue: ObserverQueue):
        self._keys = keys
        self._observer_queue = observer_queue

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        method = details.method
        reject = partial(self._reject, method)
        if method in OPEN_METHODS or method.startswith(HEALTH):
            return _limit_messages(continuation(details), reject)
        authorization = _join_values(details.invocation_metadata, "authorization")
        api_key = _join_values(details.invocation_metadata, "x-api-key")
        try:
            self._keys.check(authorization, api_key)
        except Unauthenticated as error:
            return grpc.stream_stream_rpc_method_handler(Rejection(reject, error))
        return continuation(details)

    def _reject(self, path: str, context: grpc.ServicerContext, error: InferenceError) -> NoReturn:
        """Abort a call, and record it for the observers."""
        service, _, name = path.lstrip("/").partition("/")
        is_known = service == SERVICE_NAME and name in OPERATIONS
        method = name if is_known else "unknown"  # other names are text of the client
        status = Status(status_of(error, STATUS), str(error), error.log_text())
        call = GrpcCall(method, context)
        call.outcome.fail(type(error), status.log_text)
        record_and_abort(call, context, status=status, observer_queue=self._observer_queue)


def _limit_messages(
    handler: grpc.RpcMethodHandler | None, reject: Callable[..., NoReturn]
) -> grpc.RpcMethodHandler | None:
    """Return the handler of a method as an OpenHandler, or None if the method is unknown.

    Watch of the health service responds with a stream.
    """
    if handler is None:
        return None
    open_handler = OpenHandler(handler, reject)
    make_handler = grpc.unary_unary_rpc_method_handler
    if handler.response_streaming:
        make_handler = grpc.unary_stream_rpc_method_handler
    return make_handler(open_handler, open_handler.deserialize, handler.response_serializer)


def _join_values(metadata: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the values of the metadata `name`, joined with commas as over REST, or None."""
    values = [value for key, value in metadata if key == name]
    if not values:
        return None
    return ",".join(values)
