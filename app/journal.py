"""What became of every call, told to whoever counts or writes it down: in a thread, not while a client waits."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from app.call import Call

# Calls wait so long to be told together; behind one scrape of metrics, at most.
INTERVAL_SECONDS = 0.05
# So many are told at once; between, the thread lets requests have Python's lock.
CHUNK = 128

Observer = Callable[[list[Call]], None]
logger = logging.getLogger(__name__)


class Journal:
    """Calls that ended, in order, for `observers`, each of which is given them a few at a time."""

    def __init__(self, *observers: Observer):
        self.observers = list(observers)
        self._calls: deque[Call] = deque()
        self._filled = threading.Event()
        self._telling = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, call: Call) -> None:
        """Takes note of the end of `call`."""
        call.ended = time.monotonic()
        self._calls.append(call)
        if not self._filled.is_set():
            self._filled.set()
            if self._thread is None:  # not before, since a process may be forked after the journal is made
                self.start()

    def start(self) -> None:
        with self._telling:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="journal", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no more of them now; the next call tries again
                    self._filled.clear()
                else:
                    self._thread = thread

    def _run(self) -> None:
        while True:
            self._filled.wait()
            time.sleep(INTERVAL_SECONDS)
            self._filled.clear()
            self.flush()

    def flush(self) -> None:
        """Tells what there is now: all of it to one observer before the next, which may be slower."""
        with self._telling:
            calls = [self._calls.popleft() for _ in range(len(self._calls))]
            for observer in self.observers:
                for start in range(0, len(calls), CHUNK):
                    tell(observer, calls[start : start + CHUNK])
                    time.sleep(0)

    def settle(self) -> None:
        """Returns when what was answered before is told, by the journals of other processes too."""
        time.sleep(2 * INTERVAL_SECONDS)
        self.flush()


def tell(observer: Observer, calls: list[Call]) -> None:
    try:
        observer(calls)
    except Exception:
        logger.exception("what became of %d calls could not be told", len(calls))
