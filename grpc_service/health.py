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

# A client that has not taken an answer by then is given up, for the others.
PATIENCE_SECONDS = 2.0
logger = logging.getLogger(__name__)


class Watcher:
    """A client that watches `service`, and what it was told last. `send` gives it an answer; None is the last."""

    def __init__(self, service: str, send: Callable[[Any], Any], context: grpc.ServicerContext):
        self.service, self._send, self._context = service, send, context
        self._told: int | None = None

    def tell(self, status: int) -> None:
        if status != self._told:
            self._told = status
            self._give(HealthCheckResponse(status=status))

    def end(self) -> None:
        self._give(None)

    def _give(self, answer: HealthCheckResponse | None) -> None:
        giving_up = threading.Timer(PATIENCE_SECONDS, self._context.cancel)
        giving_up.daemon = True
        try:
            giving_up.start()
            self._send(answer)
        except Exception:  # the call or the server has ended
            logger.debug("a watch could not be told", exc_info=True)
        finally:
            giving_up.cancel()


class Health(HealthServicer):
    """Whether the services of `names` are ready, which `show` says; once it has said that they left, they have."""

    def __init__(self, *names: str):
        self._names = names
        self._is_ready = self._has_left = False
        # Who begins to watch, with True, or has ended; None for a change.
        self._news: SimpleQueue[tuple[Watcher, bool] | None] = SimpleQueue()
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

    def Watch(  # noqa: N802
        self, request: HealthCheckRequest, context: grpc.ServicerContext, send: Callable[[Any], Any]
    ) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="health", daemon=True)
                self._thread.start()
        watcher = Watcher(request.service, send, context)
        self._news.put((watcher, True))
        if not context.add_callback(lambda: self._news.put((watcher, False))):
            self._news.put((watcher, False))

    # grpcio's own way for a call of many answers to hold no thread.
    Watch.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _run(self) -> None:
        watchers: dict[Watcher, None] = {}  # in the order in which they came
        while True:
            match self._news.get():
                case None:
                    due = list(watchers)
                case watcher, True:
                    watchers[watcher] = None
                    due = [watcher]
                case watcher, _:
                    watchers.pop(watcher, None)
                    watcher.end()
                    due = []
            for each in due:
                each.tell(self.status(each.service))
