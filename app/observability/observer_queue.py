"""Queue of completed calls for observers, such as metrics and the access log.

A thread passes the calls on, so that requests do not wait for observers:

    end of a call -> add() -> queue -> flush(), every INTERVAL_SECONDS -> each observer, in chunks

Observers must not change the calls.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from app.inference.call import Call

INTERVAL_SECONDS = 0.05  # interval between calls of the observers
CHUNK = 128  # calls that an observer gets at once
PAUSE_SECONDS = 0.001  # pause after each chunk, for the threads of requests
MAX_CHUNKS = 16  # limits the number of pauses under load

Observer = Callable[[list[Call]], None]

logger = logging.getLogger(__name__)


class ObserverQueue:
    """Collects completed calls, and passes them to the observers in order.

    Before start(), add() calls the observers in the calling thread.
    """

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._calls: deque[Call] = deque()
        self._lock = threading.Lock()  # protects the order in which observers get the calls
        self._has_thread = False

    def add_observer(self, observer: Observer) -> None:
        self._observers.append(observer)

    def clear_observers(self) -> None:
        self._observers.clear()

    def add(self, call: Call) -> None:
        """Record the end of a call."""
        call.end()
        self._calls.append(call)
        if not self._has_thread:
            self.flush()

    def extend(self, calls: Iterable[Call]) -> None:
        """Add calls whose end is recorded."""
        self._calls.extend(calls)

    def start(self) -> None:
        """Start the thread that calls the observers. Call this after the fork."""
        threading.Thread(target=self._run, name="observers", daemon=True).start()
        self._has_thread = True

    def flush(self) -> None:
        """Pass all calls to the observers, or an empty list, so that they can update gauges."""
        with self._lock:
            calls = [self._calls.popleft() for _ in range(len(self._calls))]
            size = max(CHUNK, len(calls) // MAX_CHUNKS)
            # Each observer gets all calls before the next one, which may be slower.
            for observer in self._observers:
                for start in range(0, len(calls) or 1, size):
                    self._observe(observer, calls[start : start + size])

    def wait_for_workers(self) -> None:
        """Wait until the observers of all workers have the calls that ended before this one."""
        if self._has_thread:
            time.sleep(2 * INTERVAL_SECONDS)
        self.flush()

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_SECONDS)
            self.flush()

    def _observe(self, observer: Observer, calls: list[Call]) -> None:
        try:
            observer(calls)
        except Exception:
            logger.exception("An observer of requests failed")
        if self._has_thread:
            time.sleep(PAUSE_SECONDS)
