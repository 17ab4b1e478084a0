"""Limits of the requests that run and wait, over both protocols together. Other requests are rejected at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from app.inference.request_context import RequestContext
from app.protocol.errors import ClientDisconnected, DeadlineExceeded, InvalidInput, Overloaded

Result = TypeVar("Result")

# Calls of predict() that are shorter on average stay in one thread: others would contend for Python's lock.
SHORT_PREDICT_SECONDS = 0.002
MARGIN = 1.5  # the time that predict() needs before a deadline, in multiples of its average
RECENT_SECONDS = 0.001  # the client's deadline is not read for a request that is younger than this


class Waiter:
    """A queued request. Its thread waits at the lock until the request has a slot, a response or an error."""

    def __init__(self, context: RequestContext):
        self.context, self.has_slot = context, False
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.lock.acquire()


class Admission:
    """Slots for `concurrency` calls of predict() at once, and a queue for `queue` requests, first come, first served.

    The queue consists of groups of requests: batches, or single requests. One slot serves a group. The group's first
    request whose client still waits gets it. The lock protects the counts, the queue and the groups.
    """

    def __init__(self, concurrency: int, queue: int):
        self.concurrency, self.max_queued = concurrency, queue
        self.average_seconds = 0.0  # the average duration of predict()
        self.free_slots, self.waiting = concurrency, 0
        self.groups: deque[list[Any]] = deque()
        self.lock = threading.Lock()

    @property
    def in_flight(self) -> int:
        """The number of requests that run or wait."""
        return self.concurrency - self.free_slots + self.waiting

    def reject_if_full(self) -> None:
        """Raise Overloaded if another request could not even wait. Called before a request is read."""
        if not self.free_slots and self.waiting >= self.max_queued:
            raise self.overloaded()

    def overloaded(self) -> Overloaded:
        running, queued = f"{self.concurrency} requests running", f"{self.max_queued} queued (MAX_QUEUE_SIZE)"
        return Overloaded(f"server overloaded: {running} (MAX_CONCURRENCY) and {queued}", remedy="retry later")

    def run(self, work: Callable[..., Result], *args: Any, context: RequestContext, timeout: float | None) -> Result:
        """Call `work` as soon as there is a slot, and return its result.

        Raise Overloaded if the queue is full, and ClientDisconnected if the client has disconnected. Raise
        DeadlineExceeded if no slot is free before the client's deadline, or `timeout` seconds after the request began.
        """
        self.acquire(context, timeout)
        is_measure = True
        try:
            if self.average_seconds >= SHORT_PREDICT_SECONDS:
                context.release_thread()
            context.started = monotonic()
            return work(*args)
        except InvalidInput:
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

    def acquire(self, context: RequestContext, timeout: float | None) -> None:
        """Take a slot as soon as there is one. Raise the errors of `run`."""
        is_recent = self.free_slots and timeout is None and context.decoded - context.begun < RECENT_SECONDS
        seconds = None if is_recent else seconds_left(context, timeout)
        with self.lock:
            if self.free_slots:
                self.free_slots -= 1
                return
            waiter = Waiter(context)
            group = [waiter]
            self.enqueue(waiter, group)
        self.wait(waiter, group, seconds)

    def enqueue(self, waiter: Waiter, group: list[Any]) -> None:
        """Take a slot for `group`, or append it to the queue. The caller has the lock."""
        if self.free_slots:
            self.free_slots -= 1
            waiter.has_slot = True
        elif self.waiting < self.max_queued:
            self.waiting += 1
            self.groups.append(group)
        else:
            raise self.overloaded()

    def wait(self, waiter: Waiter, group: list[Any], seconds: float | None) -> None:
        """Wait until `waiter` has a slot, or until another request of its group has run it."""
        waiter.context.release_thread()
        if not waiter.lock.acquire(timeout=-1 if seconds is None else max(0, self.latest_start(seconds))):
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
        """Give a slot back. The first request in the queue whose client still waits gets it."""
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
        """Return the latest start of a predict() that ends at `until`. A later start would be for nothing."""
        return until - MARGIN * self.average_seconds


def seconds_left(context: RequestContext, timeout: float | None) -> float | None:
    """Return the time until `timeout` and the client's deadline, or None. Raise DeadlineExceeded if it has passed."""
    remaining = context.time_remaining()
    if timeout is not None:
        own = context.begun + timeout - monotonic()
        remaining = own if remaining is None else min(own, remaining)
    if remaining is None:
        return None
    if remaining <= 0:
        raise deadline_exceeded()
    return min(remaining, threading.TIMEOUT_MAX)  # grpcio's time for a call without a deadline is longer


def deadline_exceeded() -> DeadlineExceeded:
    return DeadlineExceeded("Deadline exceeded before predict() started.")
