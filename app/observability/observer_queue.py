"""Queue of completed requests for observers, such as metrics and the access log. They run in a background thread."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from app.inference.request_context import RequestContext

INTERVAL_SECONDS = 0.05  # interval between calls of the observers
CHUNK, PAUSE_SECONDS = (
    128,
    0.001,
)  # contexts per call of an observer, and the pause after it for other threads
Observer = Callable[[list[RequestContext]], None]

logger = logging.getLogger(__name__)


class ObserverQueue:
    """Collects the contexts of completed requests, and passes them to `observers` in order and in chunks."""

    def __init__(self, observers: Iterable[Observer] = ()):
        self.observers = [*observers]
        self._contexts: deque[RequestContext] = deque()
        self._lock, self._has_thread = threading.Lock(), False

    def add(self, context: RequestContext) -> None:
        """Record the end of a request. Before start(), call the observers immediately."""
        context.ended = time.monotonic()
        self._contexts.append(context)
        if not self._has_thread:
            self.flush()

    def start(self, *observers: Observer) -> None:
        """Add `observers`, and start the thread that calls all observers. Call this after the fork."""
        self.observers += observers
        threading.Thread(target=self._run, name="observers", daemon=True).start()
        self._has_thread = True

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Pass all contexts to the observers, or an empty list, so that they can update gauges."""
        with self._lock:
            contexts = [self._contexts.popleft() for _ in range(len(self._contexts))]
            size = max(CHUNK, len(contexts) // 16)  # limits the number of pauses under load
            for (
                observer
            ) in self.observers:  # each gets all contexts before the next one, which may be slower
                for start in range(0, len(contexts) or 1, size):
                    try:
                        observer(contexts[start : start + size])
                    except Exception:
                        logger.exception("An observer of requests failed")
                    if self._has_thread:
                        time.sleep(PAUSE_SECONDS)

    def wait_for_workers(self) -> None:
        """Wait until the observers of all workers have received the requests that ended before this call."""
        time.sleep(2 * INTERVAL_SECONDS if self._has_thread else 0)
        self.flush()
