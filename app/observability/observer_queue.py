"""A queue of requests that have ended, for observers that count or log them in a thread, while no client waits."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from app.inference.request_context import RequestContext

INTERVAL_SECONDS = 0.05  # observers get the contexts this often
CHUNK, PAUSE_SECONDS = 128, 0.001  # contexts that an observer gets at once, and the time for requests after them

logger = logging.getLogger(__name__)


class ObserverQueue:
    """Collects the contexts of requests that have ended, and passes them to `observers` in order, a few at a time."""

    def __init__(self, observers: Iterable[Callable[[list[RequestContext]], None]] = ()):
        self.observers = [*observers]
        self._contexts: deque[RequestContext] = deque()
        self._lock, self._has_thread = threading.Lock(), False

    def add(self, context: RequestContext) -> None:
        """Record the end of a request. Before start(), pass it on at once."""
        context.ended = time.monotonic()
        self._contexts.append(context)
        if not self._has_thread:
            self.flush()

    def start(self, *observers: Callable[[list[RequestContext]], None]) -> None:
        """Pass on contexts in a thread from now on, to these observers too. Call this after the fork."""
        self.observers += observers
        threading.Thread(target=self._run, name="observers", daemon=True).start()
        self._has_thread = True

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Pass on all contexts, or an empty list, so that observers can update gauges."""
        with self._lock:
            contexts = [self._contexts.popleft() for _ in range(len(self._contexts))]
            size = max(CHUNK, len(contexts) // 16)  # few pauses, so that the thread keeps up
            for observer in self.observers:  # to one before the next, which may be slower
                for start in range(0, len(contexts) or 1, size):
                    try:
                        observer(contexts[start : start + size])
                    except Exception:
                        logger.exception("An observer of requests failed")
                    if self._has_thread:
                        time.sleep(PAUSE_SECONDS)

    def wait_for_workers(self) -> None:
        """Wait until all workers have passed on the requests that have ended before."""
        time.sleep(2 * INTERVAL_SECONDS)
        self.flush()
