"""A queue of calls that have ended, for observers that count or log them in a thread, while no client waits."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from app.inference.context import RequestContext

INTERVAL_SECONDS = 0.05  # observers get the calls this often
CHUNK, PAUSE_SECONDS = 128, 0.001  # calls that an observer gets at once, and the time for requests after them

logger = logging.getLogger(__name__)


class ObserverQueue:
    """Collects calls that have ended, and passes them to `observers` in order, a few at a time."""

    def __init__(self, observers: Iterable[Callable[[list[RequestContext]], None]] = ()):
        self.observers = [*observers]
        self._calls: deque[RequestContext] = deque()
        self._lock, self._has_thread = threading.Lock(), False

    def add(self, call: RequestContext) -> None:
        """Record the end of `call`. Before start(), pass it on at once."""
        call.ended = time.monotonic()
        self._calls.append(call)
        if not self._has_thread:
            self.flush()

    def start(self, *observers: Callable[[list[RequestContext]], None]) -> None:
        """Pass on calls in a thread from now on, to these observers too. Call this after the fork."""
        self.observers += observers
        threading.Thread(target=self._run, name="observers", daemon=True).start()
        self._has_thread = True

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Pass on all calls, or an empty list, so that observers can update gauges."""
        with self._lock:
            calls = [self._calls.popleft() for _ in range(len(self._calls))]
            size = max(CHUNK, len(calls) // 16)  # few pauses, so that the thread keeps up
            for observer in self.observers:  # to one before the next, which may be slower
                for start in range(0, len(calls) or 1, size):
                    try:
                        observer(calls[start : start + size])
                    except Exception:
                        logger.exception("An observer of calls failed")
                    if self._has_thread:
                        time.sleep(PAUSE_SECONDS)

    def wait_for_workers(self) -> None:
        """Wait until all workers have passed on the calls that have ended before."""
        time.sleep(2 * INTERVAL_SECONDS)
        self.flush()
