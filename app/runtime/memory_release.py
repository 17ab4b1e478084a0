"""Return of free memory to the system after a load."""

import os
from collections.abc import Callable
from time import monotonic

from app.config.resources import anonymous_bytes, release_free_memory
from app.inference.call import Call

CHECK_SECONDS = 5.0
# A release that returns less was not necessary, or came too early. The next one waits longer.
USEFUL_BYTES = 8 * 2**20
MAX_WAIT_SECONDS = 60.0


class MemoryRelease:
    """Observer of completed calls that returns free memory to the system when no call runs.

    After many large requests, or after the connections of an attacker, most of malloc's memory is
    free. But by itself, malloc returns only what follows the last used block, which can be
    anywhere. A release takes about a millisecond.

    has_running_calls: returns True if a request waits or runs
    """

    def __init__(self, has_running_calls: Callable[[], bool]):
        self._has_running_calls = has_running_calls
        self._check_at = 0.0
        self._release_at = 0.0
        self._wait_seconds = CHECK_SECONDS
        self._size_after_release = 0

    def __call__(self, calls: list[Call]) -> None:
        now = monotonic()
        if now < self._check_at or calls or self._has_running_calls():
            return
        self._check_at = now + CHECK_SECONDS

        size = anonymous_bytes(os.getpid())
        has_grown = size > self._size_after_release + USEFUL_BYTES
        if has_grown or now >= self._release_at:
            self._release(size, now)

    def _release(self, size: int, now: float) -> None:
        release_free_memory()
        self._size_after_release = anonymous_bytes(os.getpid())
        if size - self._size_after_release > USEFUL_BYTES:
            self._wait_seconds = CHECK_SECONDS
        else:
            self._wait_seconds = min(2 * self._wait_seconds, MAX_WAIT_SECONDS)
        self._release_at = now + self._wait_seconds
