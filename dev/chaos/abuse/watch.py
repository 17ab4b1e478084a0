"""Watch the memory of a worker from outside, and kill the worker before it is too large."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import TracebackType

from tests.kit.processes import resident

POLL_SECONDS = 0.05


class MemoryWatch:
    """Records the peak memory of a process, in a thread of its own. A context manager.

    `on_kill` is called in this thread after the process was killed.

    A limit of the system would not fit. RLIMIT_AS also counts memory that is mapped and not used. A
    cgroup needs rights that a contributor may not have.

    peak: the peak of the resident memory, in bytes
    was_killed: whether the process exceeded `max_bytes`, so that it was killed
    """

    def __init__(self, pid: int, max_bytes: float, on_kill: Callable[[], None] = lambda: None):
        self.peak = resident(pid)
        self.was_killed = False
        self._pid = pid
        self._max_bytes = max_bytes
        self._on_kill = on_kill
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            memory = resident(self._pid)
            self.peak = max(self.peak, memory)
            if memory > self._max_bytes:
                self.was_killed = True
                os.kill(self._pid, signal.SIGKILL)
                self._on_kill()
                return
