"""A limit for the memory of gRPC messages that are arriving.

grpcio does not report how much of a message has arrived. Therefore, while several messages are
arriving, a thread observes by how much the memory of the process grows. What requests have reserved
(app/inference/memory_budget.py) since then does not count. Beyond the limit, it ends the calls that
have been receiving for longest. With a limit of 200 MiB:

    calls   memory of the process
    2       100 MiB    the start
    40      180 MiB    grown by 80 MiB
    50      420 MiB    grown by 320 MiB, of which 120 are too much: 120 / 320 of the 50 calls end
    31      300 MiB    grown by 200 MiB

A single message is not limited, because MAX_REQUEST_BYTES limits it.
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
# grpcio needs some time to release the memory of calls that were ended.
PAUSE_SECONDS = 0.1


class MemoryWatch:
    """Ends calls of `calls` whose messages occupy more than a limit.

    budget: knows what requests have reserved. Its part for transfers is the limit.
    max_bytes: a limit instead of that part
    """

    def __init__(self, calls: ReceiveLimit, budget: MemoryBudget, max_bytes: float = math.inf):
        self._calls = calls
        self._budget = budget
        self._own_limit = max_bytes
        self._has_work = threading.Event()
        threading.Thread(target=self._run, name="grpc_memory", daemon=True).start()

    @property
    def _limit(self) -> float:
        return min(self._own_limit, self._budget.transfer_bytes)

    def wake(self) -> None:
        """Observe the memory, if it is limited and several messages are arriving."""
        if self._calls.receiving_calls >= MIN_WATCHED_CALLS and self._limit < math.inf:
            self._has_work.set()

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            self._has_work.clear()
            self._watch()

    def _watch(self) -> None:
        """Observe the memory as long as several messages are arriving."""
        memory_at_start = anonymous_bytes(os.getpid())
        reserved_at_start = self._budget.reserved_bytes

        def growth() -> int:
            reserved = max(0, self._budget.reserved_bytes - reserved_at_start)
            return anonymous_bytes(os.getpid()) - memory_at_start - reserved

        while self._calls.receiving_calls >= MIN_WATCHED_CALLS:
            if growth() > self._limit:
                # Messages that have been handled may have left free memory.
                release_free_memory()
                self._end_calls(growth())
                time.sleep(PAUSE_SECONDS)
            else:
                time.sleep(INTERVAL_SECONDS)

    def _end_calls(self, growth: int) -> None:
        """End as many calls as occupy what exceeds the limit."""
        excess = growth - self._limit
        if excess <= 0:
            return
        ended_share = excess / growth
        for _ in range(math.ceil(ended_share * self._calls.receiving_calls)):
            self._calls.end_oldest()
