"""The service grpc.health.v1.Health (G7). One thread tells all who watch, so that nothing else waits for a client.

grpcio-health-checking's own sends under a lock, which grpcio's thread of events takes where a watch ends: where one
began just then, neither went on, and no call was answered any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN

# Sends an answer to the client; None is the last.
Send = Callable[[Any], Any]
logger = logging.getLogger(__name__)


class Health(HealthServicer):
    """Whether the services of `names` are ready, which `show` says; once it has said that they left, they have."""

    def __init__(self, *names: str):
        self._names = names
        self._is_ready = self._has_left = False
        # Who begins to watch what, who has ended, with None, and None for a change.
        self._news: SimpleQueue[tuple[Send, str | None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def show(self, ready: bool) -> None:
        self._is_ready = ready and not self._has_left
        self._news.put(None)

    def leave(self) -> None:
        self._has_left = True
        self.show(False)

    def status(self, service: str) -> int:
        if service not in self._names:
            return SERVICE_UNKNOWN
        return SERVING if self._is_ready else NOT_SERVING

    def Check(self, request: HealthCheckRequest, context: grpc.ServicerContext) -> HealthCheckResponse:  # noqa: N802
        status = self.status(request.service)
        if status == SERVICE_UNKNOWN:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            return HealthCheckResponse()
        return HealthCheckResponse(status=status)

    def Watch(self, request: HealthCheckRequest, context: grpc.ServicerContext, send: Send) -> None:  # noqa: N802
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="health", daemon=True)
                self._thread.start()
        self._news.put((send, request.service))
        if not context.add_callback(lambda: self._news.put((send, None))):
            self._news.put((send, None))

    # grpcio's own way for a call of many answers to hold no thread.
    Watch.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _run(self) -> None:
        watched: dict[Send, str] = {}
        told: dict[Send, int] = {}
        while True:
            news = self._news.get()
            for send, service in [news] if news else list(watched.items()):
                if service is None:
                    watched.pop(send, None)
                    told.pop(send, None)
                    tell(send, None)
                    continue
                watched[send] = service
                if told.get(send) != (status := self.status(service)):
                    told[send] = status
                    tell(send, HealthCheckResponse(status=status))


def tell(send: Send, answer: HealthCheckResponse | None) -> None:
    try:
        send(answer)
    except Exception:  # the call or the server has ended
        logger.debug("a watch could not be told", exc_info=True)
