"""Reads of the metrics and statistics of all workers, shared by the threads that ask for them.

A read waits 0.1 s for the other workers, and clients without an API key can ask for one. Two rules
keep such requests from occupying all threads:

- At most MAX_READERS threads read or wait, in REST and gRPC together. Others are rejected at once,
  so a thread is always free for a probe.
- The threads that wait share the next read. It begins after they have asked for it, so each result
  contains all calls that ended before its request:

    thread A  asks, reads ---------|
    thread B     asks, waits       reads --------|
    thread C         asks, waits                 gets the result of B
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from app.protocol.errors import Overloaded

# Less than the threads for requests that are not inference requests (Settings.threads).
MAX_READERS = 3

Result = TypeVar("Result")


class ReaderLimit:
    """Limits the threads in its `with` block to MAX_READERS. All reads of a process share it."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(MAX_READERS)

    def __enter__(self) -> None:
        """Raise Overloaded if there are too many threads."""
        if not self._free.acquire(blocking=False):
            raise Overloaded(
                "too many requests",
                subject="metrics and statistics",
                expected=f"at most {MAX_READERS} at the same time",
                remedy="retry later",
            )

    def __exit__(self, *_: object) -> None:
        self._free.release()


class _Round(Generic[Result]):
    """One read, for all threads that ask before it begins. `result` is None until it has ended."""

    result: Result | None = None


class SharedRead(Generic[Result]):
    """Calls `read` once for all threads that wait. `read` must not return None."""

    def __init__(self, read: Callable[[], Result], limit: ReaderLimit):
        self._read = read
        self._limit = limit
        self._next: _Round[Result] = _Round()  # has not begun
        self._lock = threading.Lock()  # held during a read

    def __call__(self, release_thread: Callable[[], None] | None) -> Result:
        """Return the result of a read that begins now or later.

        Call `release_thread`, if there is one, before this thread waits. Raise Overloaded if too
        many threads wait.
        """
        current = self._next
        with self._limit:
            if release_thread is not None:
                release_thread()
            with self._lock:
                if current.result is None:  # this thread is the first one of its round
                    self._next = _Round()
                    current.result = self._read()
                return current.result
