"""The service grpc.health.v1.Health (G7). One thread tells all who watch, and waits for none of them.

grpcio-health-checking's own sends under a lock, which grpcio's thread of events takes where a watch ends: where one
began just then, neither went on, and no call was answered any more. And what grpcio gives to send with waits until the
client has taken the answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc
from grpc._cython.cygrpc import SendMessageOperation
from grpc._server import _SEND_MESSAGE_TOKEN, _get_initial_metadata_operation, _is_rpc_state_active, _send_message
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

from grpc_service.unread import note

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN
logger = logging.getLogger(__name__)


class Watcher:
    """A client that watches `service`. `taken` is called when it has taken an answer; `send` ends the call by None."""

    def __init__(self, service: str, context: Any, send: Callable[[Any], Any], taken: Callable[[Watcher], None]):
        self.service, self._end, self._taken = service, send, taken
        self._state, self._call = context._state, context._rpc_event.call
        self._told: int | None = None
        self.is_sending = False

    def tell(self, status: int) -> None:
        """Sends the status, unless it is what was told last, or the client has not taken that yet."""
        if status != self._told and not self.is_sending:
            self._told = status
            with self._expected():
                self.is_sending = self._send(HealthCheckResponse(status=status).SerializeToString())

    def end(self) -> None:
        with self._expected():
            self._end(None)

    @contextmanager
    def _expected(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # the call or the server has ended
            logger.debug("a watch could not be told", exc_info=True)

    def _send(self, answer: bytes) -> bool:
        """What grpcio's own does, without its waiting."""
        state = self._state
        done = _send_message(state, _SEND_MESSAGE_TOKEN)

        def taken(event: Any) -> Any:
            result = done(event)
            self._taken(self)
            return result

        with state.condition:
            if not _is_rpc_state_active(state):
                return False
            operations: list[Any] = [SendMessageOperation(answer, 0)]
            if state.initial_metadata_allowed:
                operations.insert(0, _get_initial_metadata_operation(state, None))
                state.initial_metadata_allowed = False
            self._call.start_server_batch(operations, taken)
            state.due.add(_SEND_MESSAGE_TOKEN)
        note(state, self._call, len(answer))
        return True


class Health(HealthServicer):
    """Whether the services of `names` are ready, which `show` says; once it has said that they left, they have."""

    def __init__(self, *names: str):
        self._names = names
        self._is_ready = self._has_left = False
        # Who watches, with what happened: "begun", "taken" or "ended"; None for a change.
        self._news: SimpleQueue[tuple[Watcher, str] | None] = SimpleQueue()
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
                thread = threading.Thread(target=self._run, name="health", daemon=True)
                thread.start()
                self._thread = thread  # where there was none to be had, the next who watches tries again
        watcher = Watcher(request.service, context, send, lambda watcher: self._news.put((watcher, "taken")))
        self._news.put((watcher, "begun"))
        if not context.add_callback(lambda: self._news.put((watcher, "ended"))):
            self._news.put((watcher, "ended"))

    # grpcio's own way for a call of many answers to hold no thread.
    Watch.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _run(self) -> None:
        watchers: dict[Watcher, None] = {}  # in the order in which they came
        while True:
            match self._news.get():
                case None:
                    due = list(watchers)
                case watcher, "begun":
                    watchers[watcher] = None
                    due = [watcher]
                case watcher, "taken":
                    watcher.is_sending = False
                    due = [watcher]
                case watcher, _:
                    watchers.pop(watcher, None)
                    watcher.end()
                    due = []
            for each in due:
                each.tell(self.status(each.service))
