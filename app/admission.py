"""Limits of the requests that run and wait, over both protocols together. Other requests are rejected at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from app.call import Call
from app.errors import Abandoned, InvalidInput, Overloaded, TimedOut

Result = TypeVar("Result")

# Calls of predict() that are shorter on average stay in one thread: others would contend for Python's lock.
QUICK_SECONDS = 0.002
# The time that predict() needs before a deadline, in multiples of its average.
MARGIN = 1.5
# A call that is younger has not passed its deadline.
MOMENT = 0.001
# Limit of waits: grpcio's time for a call without a deadline is more than a lock accepts.
LONGEST_SECONDS = 10**6


class Waiter:
    """A thread that waits for a slot. Its lock is released when it gets one, or when its client has disconnected."""

    __slots__ = ("has_slot", "is_active", "lock")

    def __init__(self, is_active: Callable[[], bool]):
        self.lock, self.is_active, self.has_slot = threading.Lock(), is_active, False
        self.lock.acquire()


class Slots:
    """A semaphore of `count` slots that serves waiting threads first, in their order."""

    def __init__(self, count: int):
        self.free = count
        self._lock = threading.Lock()
        self._line: deque[Waiter] = deque()

    def take(self) -> bool:
        """Take a slot if one is free. None is free while others wait."""
        with self._lock:
            if not self.free:
                return False
            self.free -= 1
            return True

    def wait(self, seconds: float | None, is_active: Callable[[], bool]) -> bool:
        """Wait for a slot and take it. Return False if none is free in time, or if the client has disconnected."""
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
        """Give a slot back. The first thread whose client still waits gets it."""
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
        """The number of requests that run or wait."""
        return self.concurrency - self.slots.free + self.queue - self.places.free

    def check(self) -> None:
        """Raise Overloaded if another request could not even wait. Called before a request is read."""
        if not self.slots.free and not self.places.free:
            raise self.overloaded()

    def overloaded(self) -> Overloaded:
        running, queued = f"{self.concurrency} requests running (MAX_CONCURRENCY)", f"{self.queue} queued (MAX_QUEUE)"
        return Overloaded(f"server overloaded: {running} and {queued}", remedy="retry later")

    def run(self, work: Callable[..., Result], *arguments: Any, call: Call, timeout: float | None) -> Result:
        """Call `work` as soon as there is a slot, and return its result.

        Raise Overloaded if the queue is full, TimedOut if no slot is free within `timeout` seconds of the call's begin
        or before the client's deadline, and Abandoned if the client has disconnected.
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
        """Update the average duration of predict()."""
        self.seconds += (seconds - self.seconds) / 10

    def take(self, call: Call, timeout: float | None, has_place: bool = False) -> None:
        """Take a slot as soon as there is one. Give back the place in the queue, if any. Raise the errors of `run`."""
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
        """Return the latest start of a predict() that ends at `until`."""
        return until - MARGIN * self.seconds

    def patience(self, seconds: float | None) -> float | None:
        """Return how long a request may wait that has `seconds` left. A later start would be for nothing."""
        return None if seconds is None else max(0, self.latest(seconds))


def seconds_left(call: Call, timeout: float | None) -> float | None:
    """Return the time that is left for the call: of `timeout`, and of the client's deadline. Raise TimedOut if none."""
    remaining = call.time_remaining()
    if timeout is not None:
        own = call.begun + timeout - monotonic()
        remaining = own if remaining is None else min(own, remaining)
    if remaining is None:
        return None
    if remaining <= 0:
        raise too_late()
    return min(remaining, LONGEST_SECONDS)


def too_late() -> TimedOut:
    return TimedOut("deadline exceeded", remedy="the model could not start in time")
