"""API key authentication for gRPC. Liveness and readiness checks need no key."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from app.config.api_keys import ApiKeys
from app.observability.observer_queue import ObserverQueue
from app.protocol.errors import Unauthenticated
from grpc_service.grpc_call import OPERATIONS, GrpcCall
from grpc_service.handlers import STATUS, Status, record_and_abort
from grpc_service.messages import SERVICE_NAME

OPEN_METHODS = {f"/{SERVICE_NAME}/{name}" for name in ("ServerLive", "ServerReady", "ModelReady")}
HEALTH = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"


class OpenHandler:
    """Handler of a method that needs no key. The pool limits messages for such methods strictly."""

    is_open = True

    def __init__(self, handler: Callable[..., Any]):
        self._handler = handler

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._handler(request, context)


class ApiKeyInterceptor(grpc.ServerInterceptor):
    """Rejects calls without a valid key before reading the message.

    Reflection and unknown methods also need a key.
    """

    def __init__(self, keys: ApiKeys, observer_queue: ObserverQueue):
        self._keys = keys
        self._observer_queue = observer_queue

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        is_open = details.method in OPEN_METHODS or details.method.startswith(HEALTH)
        if is_open:
            return _mark_as_open(continuation(details))
        authorization = _join_values(details.invocation_metadata, "authorization")
        api_key = _join_values(details.invocation_metadata, "x-api-key")
        try:
            self._keys.check(authorization, api_key)
        except Unauthenticated as error:
            return self._reject(details.method, error)
        return continuation(details)

    def _reject(self, path: str, error: Unauthenticated) -> grpc.RpcMethodHandler:
        """Return a handler that aborts the call.

        It is a stream handler, because those do not wait for a message.
        """
        service, _, name = path.lstrip("/").partition("/")
        is_known = service == SERVICE_NAME and name in OPERATIONS
        method = name if is_known else "unknown"  # other names are text of the client
        status = Status(STATUS[Unauthenticated], str(error), str(error))

        def reject(_: Iterator[bytes], context: grpc.ServicerContext) -> None:
            call = GrpcCall(method, context)
            call.outcome.fail(Unauthenticated, status.log_text)
            record_and_abort(call, context, status=status, observer_queue=self._observer_queue)

        return grpc.stream_stream_rpc_method_handler(reject)


def _mark_as_open(handler: grpc.RpcMethodHandler | None) -> grpc.RpcMethodHandler | None:
    """Return the handler of a method as an OpenHandler, or None if the method is unknown.

    Watch of the health service responds with a stream.
    """
    if handler is None:
        return None
    make_handler = grpc.unary_unary_rpc_method_handler
    if handler.response_streaming:
        make_handler = grpc.unary_stream_rpc_method_handler
    return make_handler(
        OpenHandler(handler.unary_stream or handler.unary_unary),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _join_values(metadata: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the values of the metadata `name`, joined with commas as over REST, or None."""
    values = [value for key, value in metadata if key == name]
    if not values:
        return None
    return ",".join(values)
