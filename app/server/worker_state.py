"""Memory that all processes of the service share: which workers are ready, and whether the service stops."""

from __future__ import annotations

import logging
import mmap
import os
import time
from contextlib import suppress
from typing import Any, NoReturn

logger = logging.getLogger(__name__)

# Places for the process ids of workers: for the old and the new ones of the largest WORKERS, and some more.
PLACES = 2047
STOP_SECONDS = 0.5
PIPE_BYTES = 2**16  # the most that a pipe of Linux holds


class Board:
    """Created before the workers are forked. Each worker writes into its own place, its age modulo PLACES.

    The last place is the master's: whether the whole service stops.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []  # in the master: why the workers that were started last failed
        self._places = memoryview(mmap.mmap(-1, (PLACES + 1) * 4)).cast("I")
        self._tell, self._may_tell = os.pipe()
        self._read, self._write = os.pipe()
        for end in (self._tell, self._read, self._write):
            os.set_blocking(end, False)

    def let_tell(self) -> None:
        """Let one more process log what failed, the first that fails."""
        self.reasons.clear()
        self.may_tell()
        os.write(self._may_tell, b".")

    def may_tell(self) -> bool:
        """Return whether no other process has logged the failure that all workers share."""
        with suppress(BlockingIOError):
            return bool(os.read(self._tell, 1))
        return False

    def exit_worker(self, problem: str, reason: str, exc_info: Any, status: int) -> NoReturn:
        """Report why this worker cannot start, and exit. The first of several workers logs the traceback, if any."""
        with suppress(BlockingIOError):  # the pipe is full of other reports
            os.write(self._write, reason.replace("\n", " ").encode("utf-8", "replace") + b"\n")
        if exc_info and self.may_tell():
            logger.error(problem, exc_info=exc_info)
        logging.shutdown()
        os._exit(status)

    def hear(self) -> list[str]:
        """Add what was reported to `reasons`. Return the new ones."""
        lines: list[str] = []
        with suppress(BlockingIOError):
            lines = os.read(self._read, PIPE_BYTES).decode(errors="replace").split("\n")[:-1]
        new = [line for line in dict.fromkeys(lines) if line not in self.reasons]
        self.reasons += new
        return new

    def show_stop(self) -> None:
        self._places[PLACES] = 1

    @property
    def is_stopping(self) -> bool:
        return self._places[PLACES] == 1

    def wait_for_stop(self) -> bool:
        """Return whether the service stops. A worker can get a signal before the master records the stop."""
        end = time.monotonic() + STOP_SECONDS
        while not self.is_stopping and time.monotonic() < end:
            time.sleep(STOP_SECONDS / 50)
        return self.is_stopping

    def show(self, age: int, is_ready: bool) -> None:
        """Record whether this process, the worker of that `age`, is ready."""
        place, pid = age % PLACES, os.getpid()
        if is_ready:
            self._places[place] = pid
        elif self._places[place] == pid:  # not the place of a worker that is PLACES younger
            self._places[place] = 0

    def forget(self, pid: int) -> None:
        """Remove a worker that has ended."""
        if pid in (places := self._places[:PLACES].tolist()):
            self._places[places.index(pid)] = 0

    def ready(self) -> set[int]:
        """Return the process ids of the workers that are ready."""
        return set(self._places[:PLACES].tolist()) - {0}
