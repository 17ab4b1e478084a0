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

from app.config.resources import anonymous_bytes, release_free_memory
from app.inference.memory_budget import MemoryBudget
from grpc_service.receive_limit import ReceiveLimit

MIN_WATCHED_CALLS = 2
# A fast client can send about 20 MB meanwhile.
INTERVAL_SECONDS = 0.02


class MemoryWatch:
    """Ends calls of `calls` whose messages exceed the part of `budget` for them.

    If the budget is not limited, it does nothing.
    """

    def __init__(self, calls: ReceiveLimit, budget: MemoryBudget):
        self._calls = calls
        self._budget = budget
        self._has_work = threading.Event()
        threading.Thread(target=self._run, name="grpc_memory", daemon=True).start()

    def wake(self) -> None:
        """Observe the memory, if it is limited and several messages are arriving."""
        if len(self._calls) >= MIN_WATCHED_CALLS and self._budget.is_limited:
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
            if self._unreserved_bytes() - size_at_start > self._budget.transfer_bytes:
                # Messages that have been handled may have left free memory.
                release_free_memory()
                self._limit_growth(self._unreserved_bytes() - size_at_start)
            time.sleep(INTERVAL_SECONDS)

    def _unreserved_bytes(self) -> int:
        """Return the memory of the process without what decoded requests can use."""
        return anonymous_bytes(os.getpid()) - self._budget.reserved_bytes

    def _limit_growth(self, growth: int) -> None:
        """End calls, if the memory has grown beyond the limit by the size of their messages."""
        excess = growth - self._budget.transfer_bytes
        if excess <= 0:
            return
        ended_share = excess / growth
        for _ in range(math.ceil(ended_share * len(self._calls))):
            self._calls.end_oldest()
