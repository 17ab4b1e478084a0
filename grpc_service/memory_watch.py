"""A limit for the memory of gRPC messages that are arriving.

grpcio does not report how much of a message has arrived. Therefore, while several messages are
arriving, a thread observes by how much the memory of the process grows. Beyond the limit, it ends
the calls that have been receiving for longest:

    messages arriving   memory          limit: 200 MiB more than at the start
    2                   100 MiB         start: all others are compared with it
    40                  180 MiB
    50                  420 MiB         320 MiB more, so 19 calls end: 50 * 120 / 320
    31                  300 MiB

The memory that decoded requests have reserved (app/inference/memory_budget.py) does not count. A
single message is not limited, because MAX_REQUEST_BYTES limits it.
"""

import math
import os
import threading
import time
from collections.abc import Callable

from app.config.resources import anonymous_bytes, release_free_memory
from grpc_service.receive_limit import ReceiveLimit

MIN_WATCHED_CALLS = 2
# A fast client can send about 20 MB meanwhile.
INTERVAL_SECONDS = 0.02


class MemoryWatch:
    """Ends calls whose messages exceed a limit.

    calls: the calls whose messages are arriving
    max_bytes: returns the limit, which can change, or math.inf
    reserved_bytes: returns the memory that decoded requests may use, which does not count
    """

    def __init__(
        self,
        calls: ReceiveLimit,
        max_bytes: Callable[[], float],
        reserved_bytes: Callable[[], int],
    ):
        self._calls = calls
        self._max_bytes = max_bytes
        self._reserved_bytes = reserved_bytes
        self._has_work = threading.Event()
        threading.Thread(target=self._run, name="grpc_memory", daemon=True).start()

    def wake(self) -> None:
        """Observe the memory, if it is limited and several messages are arriving."""
        if len(self._calls) >= MIN_WATCHED_CALLS and self._max_bytes() < math.inf:
            self._has_work.set()

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            self._watch()
            self._has_work.clear()

    def _watch(self) -> None:
        """Observe the memory as long as several messages are arriving."""
        size_at_start = self._unreserved_bytes()
        while len(self._calls) >= MIN_WATCHED_CALLS:
            if self._unreserved_bytes() - size_at_start > self._max_bytes():
                # Messages that have been handled may have left free memory.
                release_free_memory()
                self._limit_growth(self._unreserved_bytes() - size_at_start)
            time.sleep(INTERVAL_SECONDS)

    def _unreserved_bytes(self) -> int:
        """Return the memory of the process without what decoded requests can use."""
        return anonymous_bytes(os.getpid()) - self._reserved_bytes()

    def _limit_growth(self, growth: int) -> None:
        """End calls, if the memory has grown beyond the limit by the size of their messages."""
        excess = growth - self._max_bytes()
        if excess <= 0:
            return
        ended_share = excess / growth
        for _ in range(math.ceil(ended_share * len(self._calls))):
            self._calls.end_oldest()
