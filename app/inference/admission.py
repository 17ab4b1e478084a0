"""Admission control: limits for running and queued requests of both protocols. Excess requests are rejected."""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from app.inference.request_context import RequestContext
from app.protocol.errors import (
    ClientDisconnected,
    DeadlineExceeded,
    InvalidInput,
    Overloaded,
    PredictTimeout,
)

Result = TypeVar("Result")

# If predict() is shorter on average, its thread remains the leader, because others would contend for the GIL.
SHORT_PREDICT_SECONDS = 0.002
MARGIN = 1.5  # time reserved for predict() before a deadline, as a multiple of its average duration
RECENT_SECONDS = 0.001  # a newer request starts without a check of its deadline
NOT_MEASURED = (
    InvalidInput,
    PredictTimeout,
)  # errors of calls that would distort the average duration


class Waiter:
    """A queued request. Its thread blocks on `lock` until the request has a slot, a response or an error."""

    def __init__(self, context: RequestContext):
        self.context, self.has_slot = context, False
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.lock.acquire()


class Admission:
    """Slots for `concurrency` concurrent calls of predict(), and a FIFO queue for `queue` requests.

    The queue contains groups of requests: batches, or single requests. A group needs one slot. The first request of the
    group whose client is connected gets it. `lock` protects the counts, the queue and the groups.
    """

    def __init__(self, concurrency: int, queue: int):
        self.concurrency, self.max_queued = concurrency, queue
        self.average_seconds = 0.0  # average duration of predict()
        self.free_slots, self.waiting = concurrency, 0
        self.groups: deque[list[Any]] = deque()
        self.lock = threading.Lock()

    @property
    def in_flight(self) -> int:
        """Return the number of running and queued requests."""
        return self.concurrency - self.free_slots + self.waiting

    def reject_if_full(self) -> None:
        """Raise Overloaded if all slots are taken and the queue is full. Called before a request is read."""
        if not self.free_slots and self.waiting >= self.max_queued:
            raise self.overloaded()

    def overloaded(self) -> Overloaded:
        running, queued = (
            f"{self.concurrency} requests running",
            f"{self.max_queued} queued (MAX_QUEUE_SIZE)",
        )
        return Overloaded(
            f"server overloaded: {running} (MAX_CONCURRENCY) and {queued}", remedy="retry later"
        )

    def run(self, work: Callable[..., Result], *args: Any, context: RequestContext) -> Result:
        """Wait for a slot, call `work` and return its result.

        Raise Overloaded if the queue is full, and ClientDisconnected if the client has disconnected. Raise
        DeadlineExceeded if no slot is free before the deadline or the time limit of the request.
        """
        self.acquire(context)
        is_measure = True
        try:
            if self.average_seconds >= SHORT_PREDICT_SECONDS:
                context.release_thread()
            context.started = monotonic()
            return work(*args)
        except NOT_MEASURED:
            is_measure = False
            raise
        finally:
            if is_measure:
                context.predicted = monotonic()
                self.record_duration(context.predicted - context.started)
            self.release()

    def record_duration(self, seconds: float) -> None:
        """Update the average duration of predict()."""
        self.average_seconds += (seconds - self.average_seconds) / 10

    def acquire(self, context: RequestContext) -> None:
        """Wait for a slot and take it. Raise the same exceptions as run()."""
        is_recent = (
            self.free_slots
            and context.timeout is None
            and context.decoded - context.begun < RECENT_SECONDS
        )
        seconds = None if is_recent else seconds_left(context)
        with self.lock:
            if self.free_slots:
                self.free_slots -= 1
                return
            waiter = Waiter(context)
            group = [waiter]
            self.enqueue(waiter, group)
        self.wait(waiter, group, seconds)

    def enqueue(self, waiter: Waiter, group: list[Any]) -> None:
        """Take a slot for `group`, or append it to the queue. The caller must hold the lock."""
        if self.free_slots:
            self.free_slots -= 1
            waiter.has_slot = True
        elif self.waiting < self.max_queued:
            self.waiting += 1
            self.groups.append(group)
        else:
            raise self.overloaded()

    def wait(self, waiter: Waiter, group: list[Any], seconds: float | None) -> None:
        """Block until `waiter` has a slot, or until the thread of another request has processed its group."""
        waiter.context.release_thread()
        if not waiter.lock.acquire(
            timeout=-1 if seconds is None else max(0, self.latest_start(seconds))
        ):
            with self.lock:
                if waiter in group and not waiter.has_slot:
                    self.remove(waiter, group)
                    raise deadline_exceeded()
            waiter.lock.acquire()
        if waiter.error is not None:
            raise waiter.error

    def remove(self, waiter: Waiter, group: list[Any]) -> None:
        group.remove(waiter)
        self.waiting -= 1
        if not group:
            self.groups.remove(group)

    def release(self) -> None:
        """Release a slot. The first queued request whose client is connected gets it."""
        with self.lock:
            while self.groups:
                group = self.groups[0]
                waiter = group[0]
                if waiter.context.is_active():
                    self.groups.popleft()
                    self.waiting -= 1
                    waiter.has_slot = True
                    waiter.lock.release()
                    return
                self.remove(waiter, group)
                waiter.error = ClientDisconnected("Client disconnected.")
                waiter.lock.release()
            self.free_slots += 1

    def latest_start(self, until: float) -> float:
        """Return the latest time at which a call of predict() can start if it has to end by `until`."""
        return until - MARGIN * self.average_seconds


def seconds_left(context: RequestContext) -> float | None:
    """Return the seconds until the time limit, or None without a limit. Raise DeadlineExceeded if it has passed."""
    remaining = context.time_remaining()
    if remaining is None:
        return None
    if remaining <= 0:
        raise deadline_exceeded()
    return min(remaining, threading.TIMEOUT_MAX)


def deadline_exceeded() -> DeadlineExceeded:
    return DeadlineExceeded("Deadline exceeded: predict() could not finish in time.")
