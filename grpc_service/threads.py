"""The threads that answer gRPC calls: what grpcio asks of a ThreadPoolExecutor, without what it does not.

A small call takes a tenth less than with the standard library's pool, for whose futures nobody here waits.

grpcio gives a call its thread before the call's message has come. A thread that waits long for one does not count, so
that slow clients leave the others theirs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

logger = logging.getLogger(__name__)

LATE_SECONDS = 0.1
# Beyond so many, calls that have waited longer still are ended, those first of the clients that hold the most threads.
LATE_AT_MOST = 512
TOO_LATE_SECONDS = 1.0


class Accepted:
    """What stands for a future: grpcio only counts by it the calls that it gave away."""

    def add_done_callback(self, call: Callable[[Any], Any]) -> None:
        call(self)


class Hand:
    """A thread: the `arguments` of its call, and `since` when it has waited for the message."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.arguments: tuple[Any, ...] = ()

    def is_late(self, now: float, seconds: float = LATE_SECONDS) -> bool:
        since = self.since
        return since is not None and now - since > seconds

    @property
    def call(self) -> Any:
        """grpcio's own, by what it calls the event of it; None where there is none."""
        return next(filter(None, (getattr(each, "call", None) for each in self.arguments)), None)

    @property
    def peer(self) -> str:
        """The call's client, as grpcio names it: "ipv4:127.0.0.1:4711"; none where there is no call."""
        call = self.call
        return call.peer().decode() if call else ""

    def give_up(self) -> None:
        """Cancels the call."""
        with suppress(Exception):  # it has ended
            self.call.cancel()


ACCEPTED = Accepted()
current = threading.local()


def message_came() -> None:
    """To be said in a call's thread."""
    if hand := getattr(current, "hand", None):
        hand.since = None


class Threads(Executor):
    """At most `count` threads that run what is submitted, first come, first served; they end with the process.

    There are as many as were ever busy at once, so that nothing waits while another could be started.
    """

    def __init__(self, count: int, name: str):
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self._count, self._name, self._limit = count, name, count
        self._submitted = 0
        self._done: list[int] = []  # by each thread, so that none needs a lock to count
        self._hands: list[Hand] = []
        self._watching = False
        self._starting = threading.Lock()

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return self._submitted - sum(self._done)

    @property
    def peers(self) -> set[str]:
        """The clients that have a call running."""
        return {hand.peer for hand in self._hands} - {""}

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Any:  # type: ignore[override]
        """Runs the call in a thread. Only grpcio's one thread of events submits."""
        if self.busy >= len(self._done):
            self._start()
        self._submitted += 1
        self._calls.put((call, arguments))
        return ACCEPTED

    def _start(self) -> None:
        """One more thread where there may be one; one that watches once there may not."""
        with self._starting:
            index = len(self._done)
            if index < self._limit:
                self._done.append(0)
                self._hands.append(Hand())
                target, name = lambda: self._run(index), f"{self._name}_{index}"
            elif not self._watching:
                self._watching, target, name = True, self._watch, f"{self._name}_watch"
            else:
                return
        threading.Thread(target=target, name=name, daemon=True).start()

    def _run(self, index: int) -> None:
        hand = current.hand = self._hands[index]
        while True:
            call, hand.arguments = self._calls.get()
            hand.since = time.monotonic()
            try:
                call(*hand.arguments)
            except BaseException:  # the thread has others to answer
                logger.exception("a gRPC call failed")
            hand.since, hand.arguments = None, ()
            del call  # a request must not live on until the next
            self._done[index] += 1

    def _watch(self) -> None:
        """Gives calls that wait for a thread another in the place of each that is late."""
        while True:
            time.sleep(LATE_SECONDS)
            waiting, now = self._calls.qsize(), time.monotonic()
            if not waiting:
                continue
            late = [hand for hand in self._hands if hand.is_late(now)]
            self._limit = self._count + min(len(late), LATE_AT_MOST)
            if len(late) >= LATE_AT_MOST:
                for hand in [each for each in greediest(late) if each.is_late(now, TOO_LATE_SECONDS)][:waiting]:
                    hand.give_up()
            for _ in range(waiting):
                self._start()


def greediest(hands: list[Hand]) -> list[Hand]:
    """Those whose clients have as many of `hands` as any client has."""
    peers = [hand.peer for hand in hands]
    counts = Counter(peers)
    most = max(counts.values(), default=0)
    return [hand for hand, peer in zip(hands, peers, strict=True) if counts[peer] == most]
