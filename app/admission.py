"""How many requests are let in, of both protocols together, and which of them run; the rest is told so at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from app.call import Call
from app.errors import Abandoned, InvalidInput, Overloaded, TimedOut

Result = TypeVar("Result")

# A predict() that takes longer on average is worth running beside others; quick ones would contend for Python's lock.
QUICK_SECONDS = 0.002
# What predict() may take, times its average, before a deadline.
MARGIN = 1.5
# A caller's own deadline is not asked for when the call has just come.
MOMENT = 0.001
# More than any lock can wait for is what grpcio says of a call without a deadline.
LONGEST_SECONDS = 10**6


class Waiter:
    """Who waits for a slot: the lock is free when there is one for it, or when it has left."""

    __slots__ = ("has_slot", "is_active", "lock")

    def __init__(self, is_active: Callable[[], bool]):
        self.lock, self.is_active, self.has_slot = threading.Lock(), is_active, False
        self.lock.acquire()


class Slots:
    """So many may be taken at once; who waits is let in before who comes later, unlike with queue.SimpleQueue."""

    def __init__(self, count: int):
        self.free = count
        self._lock = threading.Lock()
        self._line: deque[Waiter] = deque()

    def take(self) -> bool:
        """Takes one, if one is free; while others wait, none is."""
        with self._lock:
            if not self.free:
                return False
            self.free -= 1
            return True

    def wait(self, seconds: float | None, is_active: Callable[[], bool]) -> bool:
        """Takes one when it is this caller's turn; False where that does not come in time, or the caller has left.

        `seconds` of None are as long as it takes.
        """
        waiter = Waiter(is_active)
        with self._lock:
            if self.free:
                self.free -= 1
                return True
            self._line.append(waiter)
        if not waiter.lock.acquire(timeout=-1 if seconds is None else seconds):
            with self._lock:
                if waiter in self._line:
                    self._line.remove(waiter)
        return waiter.has_slot

    def give(self) -> None:
        """Gives one back: to the first of those who wait yet."""
        with self._lock:
            while self._line:
                waiter = self._line.popleft()
                waiter.has_slot = waiter.is_active()
                waiter.lock.release()
                if waiter.has_slot:
                    return
            self.free += 1


class Admission:
    """Slots for `concurrency` predicts at once, and places for `queue` requests that wait for one."""

    def __init__(self, concurrency: int, queue: int):
        self.concurrency, self.queue = concurrency, queue
        self.seconds = 0.0  # what a predict takes, on average
        self.slots, self.places = Slots(concurrency), Slots(queue)

    @property
    def inside(self) -> int:
        """Requests that run or wait."""
        return self.concurrency - self.slots.free + self.queue - self.places.free

    def check(self) -> None:
        """Raises Overloaded where nobody else can come in; asked before a request is read."""
        if not self.slots.free and not self.places.free:
            raise self.overloaded()

    def overloaded(self) -> Overloaded:
        running, queued = f"{self.concurrency} requests running (MAX_CONCURRENCY)", f"{self.queue} queued (MAX_QUEUE)"
        return Overloaded(f"server overloaded: {running} and {queued}", remedy="retry later")

    def run(self, work: Callable[..., Result], *arguments: Any, call: Call, timeout: float | None) -> Result:
        """What `work` returns, once it is its turn.

        Raises Overloaded where it cannot even wait, TimedOut where its turn does not come within `timeout` seconds of
        the call's begin, or the caller's own, and Abandoned where the caller has left.
        """
        self.take(call, timeout)
        is_measure = True
        try:
            if self.seconds >= QUICK_SECONDS:
                call.release_thread()
            call.started = monotonic()
            return work(*arguments)
        except InvalidInput:
            is_measure = False
            raise
        finally:
            if is_measure:
                call.predicted = monotonic()
                self.took(call.predicted - call.started)
            self.slots.give()

    def took(self, seconds: float) -> None:
        """Takes note of what a predict took."""
        self.seconds += (seconds - self.seconds) / 10

    def take(self, call: Call, timeout: float | None, has_place: bool = False) -> None:
        """Takes a slot, as soon as there is one, and gives back the place that it had or took; raises as `run` does."""
        if timeout is None and not has_place and call.decoded - call.begun < MOMENT and self.slots.take():
            return
        try:
            seconds = seconds_left(call, timeout)
            if self.slots.take():
                return
            has_place = has_place or self.places.take()
            if not has_place:
                raise self.overloaded()
            call.release_thread()
            if not self.slots.wait(self.patience(seconds), call.is_active):
                raise too_late() if call.is_active() else Abandoned("the client disconnected")
        finally:
            if has_place:
                self.places.give()

    def latest(self, until: float) -> float:
        """When a predict must begin that is to be done by then."""
        return until - MARGIN * self.seconds

    def patience(self, seconds: float | None) -> float | None:
        """How long a request may wait that must be answered in `seconds`, if predict takes what it does on average.

        One that were begun later would be run for nothing, in the place of another that could be answered.
        """
        return None if seconds is None else max(0, self.latest(seconds))


def seconds_left(call: Call, timeout: float | None) -> float | None:
    """How long the call may wait: for `timeout` seconds from its begin, and as long as its caller; TimedOut if over."""
    remaining = call.time_remaining()
    if timeout is not None:
        own = call.begun + timeout - monotonic()
        remaining = own if remaining is None else min(own, remaining)
    if remaining is not None:
        if remaining <= 0:
            raise too_late()
        return min(remaining, LONGEST_SECONDS)
    return None


def too_late() -> TimedOut:
    return TimedOut("deadline exceeded", remedy="the model could not start in time")
