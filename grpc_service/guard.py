"""The door of gRPC where there are API keys: it lets in who shows one, and probes from anyone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from app.errors import Unauthenticated
from app.journal import Journal
from app.keys import Keys
from grpc_service.messages import SERVICE, SERVICE_NAME
from grpc_service.servicer import STATUS, GrpcCall

METHODS = {each.name for each in SERVICE.methods}
FREE = {f"/{SERVICE_NAME}/{name}" for name in ("ServerLive", "ServerReady", "ModelReady")}
HEALTH = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"


class Guard(grpc.ServerInterceptor):
    """Refuses a call before its message is read, unknown ones too; reflection tells metadata, and so needs a key."""

    def __init__(self, keys: Keys, journal: Journal):
        self.keys, self.journal = keys, journal

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        if details.method not in FREE and not details.method.startswith(HEALTH):
            headers = dict(details.invocation_metadata)
            try:
                self.keys.check(headers.get("authorization"), headers.get("x-api-key"))
            except Unauthenticated as error:
                return self.refusing(details.method, error)
        return continuation(details)

    def refusing(self, path: str, error: Unauthenticated) -> grpc.RpcMethodHandler:
        """A call that ends at once: as one of a stream of messages, none of which is asked for."""
        service, _, name = path.lstrip("/").partition("/")

        def refuse(_: Iterator[bytes], context: grpc.ServicerContext) -> None:
            call = GrpcCall(name if service == SERVICE_NAME and name in METHODS else "unknown", context)
            call.failure = Unauthenticated
            call.refuse(self.journal, STATUS[Unauthenticated], str(error))

        return grpc.stream_stream_rpc_method_handler(refuse)
