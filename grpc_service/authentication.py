"""API key authentication for gRPC. Liveness and readiness checks need no key."""

from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from app.config.api_keys import ApiKeys
from app.observability.observer_queue import ObserverQueue
from app.protocol.errors import Unauthenticated
from grpc_service.messages import SERVICE_NAME
from grpc_service.servicer import OPERATIONS, STATUS, GrpcContext

OPEN_METHODS = {f"/{SERVICE_NAME}/{name}" for name in ("ServerLive", "ServerReady", "ModelReady")}
HEALTH = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"


class ApiKeyInterceptor(grpc.ServerInterceptor):
    """Rejects calls without a valid key before reading the message. Reflection and unknown methods also need a key."""

    def __init__(self, keys: ApiKeys, observer_queue: ObserverQueue):
        self.keys, self.observer_queue = keys, observer_queue

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        if details.method not in OPEN_METHODS and not details.method.startswith(HEALTH):
            headers = dict(details.invocation_metadata)
            try:
                self.keys.check(headers.get("authorization"), headers.get("x-api-key"))
            except Unauthenticated as error:
                return self._reject(details.method, error)
        return continuation(details)

    def _reject(self, path: str, error: Unauthenticated) -> grpc.RpcMethodHandler:
        """Return a handler that aborts the call. It is a stream handler, because those do not wait for a message."""
        service, _, name = path.lstrip("/").partition("/")

        def reject(_: Iterator[bytes], grpc_context: grpc.ServicerContext) -> None:
            context = GrpcContext(
                name if service == SERVICE_NAME and name in OPERATIONS else "unknown", grpc_context
            )
            context.failure = Unauthenticated
            context.fail(self.observer_queue, STATUS[Unauthenticated], str(error))

        return grpc.stream_stream_rpc_method_handler(reject)
