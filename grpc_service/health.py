"""The service grpc.health.v1.Health (G7).

grpcio-health-checking has one, too. It keeps a thread for each watch that ends as it begins, and a record of each
service name that a client asks for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class Health(HealthServicer):
    """Reports the services `names` as ready or not, as `show` sets it. After `leave`, they are not ready."""

    def __init__(self, *names: str):
        self._names = names
        self._is_ready = self._has_left = False
        self._changed = threading.Condition()

    def show(self, ready: bool) -> None:
        self._is_ready = ready
        self._wake()

    def leave(self) -> None:
        self._has_left = True
        self.show(False)

    def status(self, service: str) -> int:
        if service not in self._names:
            return SERVICE_UNKNOWN
        return SERVING if self._is_ready and not self._has_left else NOT_SERVING

    def Check(self, request: HealthCheckRequest, context: grpc.ServicerContext) -> HealthCheckResponse:  # noqa: N802
        status = self.status(request.service)
        if status == SERVICE_UNKNOWN:
            context.abort(grpc.StatusCode.NOT_FOUND, "")
        return HealthCheckResponse(status=status)

    def Watch(  # noqa: N802
        self, request: HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[HealthCheckResponse]:
        """Send the status, and again after each change. The call has a thread until its client ends it."""
        sent = None
        context.add_callback(self._wake)
        while context.is_active():
            status = self.status(request.service)
            if status != sent:
                sent = status
                yield HealthCheckResponse(status=status)
            with self._changed:
                if self.status(request.service) == sent and context.is_active():
                    self._changed.wait()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
