"""The scheduler decides when a request runs, and which requests share a run.

A run is one execution of predict(), for one request or for several. (A call, as in call.py, is a
client's call of the service.) The scheduler has a number of slots, and a queue. A group of requests
that share a run needs one slot:

- Without batching, every group has one request.
- With batching, requests of one kind join an open group until it is full or its run starts. Groups
  therefore grow with the load. A request does not wait for others if a slot is free, except for
  MAX_BATCH_DELAY_MS.

Invariants, whenever nobody holds the lock:

- If a slot is free, the queue is empty.
- A group is in the queue, or holds a slot, or has ended.
- An open group is in the queue, or its leader waits for the delay.

No thread belongs to the scheduler. Each request has a thread of its transport, which blocks in
run(). The thread of one request of each group, the leader, calls predict() for the whole group. A
request's ticket shows where it is:

    state     meaning                                  next
    --------  ---------------------------------------  -------------------------------------------
    WAITING   waits in the queue, or joined a group    LEADING: it gets its group's slot
                                                       RUNNING: its leader starts the run
                                                       DONE: deadline or disconnect, with an error
    LEADING   its thread calls predict()               DONE
    RUNNING   its leader's thread calls predict()      DONE
    DONE      has a result or an error                 -

Whoever moves another thread's ticket to LEADING, or from RUNNING to DONE, or removes it from the
queue, then wakes its thread.

Example with one slot, a batch of 4 rows at most, and requests of one row:

    A arrives             group 1 = [A], A leads        slot: group 1, queue: -
    B, C arrive           group 2 = [B, C]              slot: group 1, queue: group 2
    B's client leaves     (noticed when B should lead)
    A's run ends          B is removed, C leads         slot: group 2, queue: -
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from time import monotonic
from typing import NamedTuple

from app.inference.batching import Result, batch_key, join_requests, row_count, split_result
from app.inference.call import BatchShare, Call, current_calls
from app.protocol.errors import (
    ClientDisconnected,
    DeadlineExceeded,
    InvalidInput,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    PredictTimeout,
    Unavailable,
)
from app.protocol.messages import InferenceRequest

# Calls predict() for one request, or for those of a batch joined into one, with their client calls.
Predict = Callable[[InferenceRequest, tuple[Call, ...]], Result]

# Before a longer predict(), a thread lets another one wait for connections. Before a shorter one,
# that does not pay, because the other thread would only contend for the GIL.
SHORT_PREDICT_SECONDS = 0.002
# Time reserved for predict() before a deadline, as a multiple of its average duration.
DEADLINE_MARGIN = 1.5
# The average duration of predict() follows the latest runs: each has this weight.
AVERAGE_WEIGHT = 0.1
# Errors of runs that ended early or late, and would distort the average duration.
NOT_MEASURED = (InvalidInput, NotFound, PayloadTooLarge, PredictTimeout, Unavailable)


class TicketState(Enum):
    WAITING = "waiting"
    LEADING = "leading"
    RUNNING = "running"
    DONE = "done"

    __hash__ = object.__hash__  # Enum's own is a slow function, and enter() looks up states


WAITING = TicketState.WAITING
LEADING = TicketState.LEADING
RUNNING = TicketState.RUNNING
DONE = TicketState.DONE

_TRANSITIONS = {
    WAITING: {LEADING, RUNNING, DONE},
    LEADING: {DONE},
    RUNNING: {DONE},
    DONE: set(),
}


class BatchLimits(NamedTuple):
    """A batch has at most `rows` rows, and waits at most `delay_seconds` for more requests."""

    rows: int
    delay_seconds: float


NO_BATCHES = BatchLimits(rows=1, delay_seconds=0.0)


class Ticket:
    """One request in the scheduler, with its result or its error when it is done.

    The request's thread blocks in wait() until another thread wakes it.
    """

    __slots__ = ("_error", "_result", "_wakeup", "call", "request", "state")

    def __init__(self, request: InferenceRequest, call: Call):
        self.request = request
        self.call = call
        self.state = WAITING
        self._result: Result  # not set before succeed()
        self._error: BaseException | None = None
        # A lock that wait() cannot take until wake() releases it. It is faster than an Event.
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    @property
    def rows(self) -> int:
        return row_count(self.request)

    def enter(self, state: TicketState) -> None:
        """Change the state. All changes from WAITING need the scheduler's lock."""
        if state not in _TRANSITIONS[self.state]:
            raise AssertionError(f"a ticket cannot go from {self.state} to {state}")
        self.state = state

    def wait(self, until: float) -> bool:
        """Block until wake(). Return False if that takes until `until`, a time or math.inf."""
        if until == math.inf:
            return self._wakeup.acquire()
        seconds = max(0.0, until - monotonic())
        return self._wakeup.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        self._wakeup.release()

    def succeed(self, result: Result) -> None:
        self._result = result
        self._error = None

    def fail(self, error: BaseException) -> None:
        self._error = error

    def fail_if_obsolete(self) -> bool:
        """Return True, and set the error, if the deadline has passed or the client has left."""
        if self.call.deadline <= monotonic():
            self.fail(_deadline_exceeded())
            return True
        if not self.call.is_active():
            self.fail(_client_disconnected())
            return True
        return False

    def result(self) -> Result:
        """Return the result, or raise the error. Call this once, in state DONE."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The error's traceback refers to frames that refer to this ticket. Without the
                # cycle, a large request is freed at once.
                self._error = None
        return self._result


class Group:
    """Tickets whose requests share one run. The first one that can run leads it.

    `key` is equal for requests that can share a run, and None for a request that must run alone.

    A group stops growing in two steps. After end_delay(), the leader waits no longer, but requests
    can still join until the leader starts the run. After Scheduler._close(), none can join.
    """

    __slots__ = ("_delay_gate", "_has_delay_ended", "delay_end", "key", "rows", "tickets")

    def __init__(self, key: Hashable | None, delay_seconds: float):
        self.key = key
        self.delay_end = monotonic() + delay_seconds
        self.tickets: list[Ticket] = []
        self.rows = 0  # including the rows of requests that have timed out
        self._has_delay_ended = False
        # The end of the delay, as a lock: end_delay() releases it, for which wait_for_more() waits.
        # It is faster than an Event.
        self._delay_gate = threading.Lock()
        self._delay_gate.acquire()

    def add(self, ticket: Ticket) -> None:
        self.tickets.append(ticket)
        if self.key is not None:
            self.rows += ticket.rows

    def end_delay(self) -> None:
        """Let the leader start the run. The caller holds the scheduler's lock."""
        if not self._has_delay_ended:
            self._has_delay_ended = True
            self._delay_gate.release()

    def wait_for_more(self) -> None:
        """Block the leader until `delay_end`, or until another thread calls end_delay()."""
        seconds = self.delay_end - monotonic()
        if not self._has_delay_ended and seconds > 0:
            self._delay_gate.acquire(timeout=seconds)


class Scheduler:
    """Executes predict() at most `concurrency` times at once. `max_queued` requests can wait.

    `_lock` protects the counts, the queue, the groups, and all state changes from WAITING.
    """

    def __init__(self, concurrency: int, max_queued: int, batch_limits: BatchLimits = NO_BATCHES):
        self.concurrency = concurrency
        self._max_queued = max_queued
        self._batch_limits = batch_limits
        self._lock = threading.Lock()
        self._free_slots = concurrency
        self._waiting = 0  # requests
        self._queue: deque[Group] = deque()
        # Groups that requests with the same key can join.
        self._open_groups: dict[Hashable, Group] = {}
        self._average_seconds = 0.0  # duration of predict()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot, or for the run of their group."""
        return self._waiting

    @property
    def in_flight(self) -> int:
        """Number of waiting requests and of runs."""
        return self.concurrency - self._free_slots + self._waiting

    @property
    def average_seconds(self) -> float:
        """Average duration of the latest runs."""
        return self._average_seconds

    @property
    def open_groups(self) -> int:
        """Number of groups that requests can join."""
        return len(self._open_groups)

    def reject_if_full(self) -> None:
        """Raise Overloaded if no request can wait. Call this before a request is read."""
        if not self._free_slots and self._waiting >= self._max_queued:
            raise self._overloaded()

    def run(self, request: InferenceRequest, call: Call, predict: Predict) -> Result:
        """Wait for a slot, call `predict` for this request or for its group, and return the result.

        Raise Overloaded if the queue is full, DeadlineExceeded if predict() probably cannot end
        before the call's deadline, ClientDisconnected if the client has gone, and the exceptions of
        `predict`.
        """
        if call.deadline <= monotonic():
            raise _deadline_exceeded()
        key = None
        if self._batch_limits.rows > 1:
            key = batch_key(request)

        # Most requests share no run and find a free slot. They need no ticket.
        has_slot = False
        if key is None:
            with self._lock:
                has_slot = self._free_slots > 0
                if has_slot:
                    self._free_slots -= 1
        if has_slot:
            try:
                return self._predict_alone(request, call, predict)
            finally:
                self._release_slot()

        ticket = Ticket(request, call)
        with self._lock:
            group = self._add(ticket, key)
        # Only a leader does not wait. Other threads go on as soon as the lock is free, so a ticket
        # that was WAITING may be RUNNING or DONE by now. Then one of them calls wake().
        if ticket.state is not LEADING:
            self._wait(ticket, group)
        if ticket.state is LEADING:
            self._lead(ticket, group, predict)
        return ticket.result()

    def record_duration(self, seconds: float) -> None:
        """Update the average duration of predict()."""
        self._average_seconds += AVERAGE_WEIGHT * (seconds - self._average_seconds)

    # The methods from here to _leave() need the lock.

    def _add(self, ticket: Ticket, key: Hashable | None) -> Group:
        """Add the ticket to the open group with the key, or to a new group. Raise Overloaded."""
        can_wait = self._waiting < self._max_queued
        if not can_wait and not self._free_slots:
            raise self._overloaded()

        group = None
        if key is not None:
            group = self._open_groups.get(key)
        if group is not None and can_wait and self._has_room(group, ticket):
            self._waiting += 1
        else:
            if group is not None:  # the new group becomes the open one of this key
                self._close(group)
            group = self._create_group(ticket, key)
        group.add(ticket)

        if key is not None:
            # After the whole delay, it would be too late for this request.
            if self._latest_start(ticket) < group.delay_end:
                group.end_delay()
            if group.rows >= self._batch_limits.rows:
                self._close(group)
        return group

    def _has_room(self, group: Group, ticket: Ticket) -> bool:
        return group.rows + ticket.rows <= self._batch_limits.rows

    def _create_group(self, ticket: Ticket, key: Hashable | None) -> Group:
        """Return a new group that has a slot, and is led by the ticket, or that is in the queue."""
        group = Group(key, self._batch_limits.delay_seconds)
        if key is not None:
            self._open_groups[key] = group
        if self._free_slots:
            self._free_slots -= 1
            ticket.enter(LEADING)
        else:
            self._waiting += 1
            self._queue.append(group)
        return group

    def _close(self, group: Group) -> None:
        """Let no more requests join the group. Closing it again has no effect."""
        # If it is closed already, another group may be the open one of its key.
        if group.key is not None and self._open_groups.get(group.key) is group:
            del self._open_groups[group.key]
        group.end_delay()

    def _leave(self, ticket: Ticket, group: Group) -> None:
        """Remove a waiting ticket from its group, which may be empty then."""
        ticket.enter(DONE)
        self._waiting -= 1
        group.tickets.remove(ticket)
        if not group.tickets:
            self._queue.remove(group)
            self._close(group)

    # The methods from here on take the lock if they need it.

    def _wait(self, ticket: Ticket, group: Group) -> None:
        """Block until the ticket leads its group or is done.

        Raise DeadlineExceeded if it still waits at its latest start.
        """
        ticket.call.release_thread()  # the thread is about to block
        is_awake = ticket.wait(until=self._latest_start(ticket))
        if is_awake:
            return

        with self._lock:
            if ticket.state is WAITING:
                self._leave(ticket, group)
                raise _deadline_exceeded()
        # At the same moment, another thread has changed the state: the ticket leads its group, its
        # run has started, or its client has left. This other thread will also wake the ticket.
        ticket.wait(until=math.inf)

    def _lead(self, leader: Ticket, group: Group, predict: Predict) -> None:
        """Call `predict` for the tickets of the group, in its slot, and wake their threads."""
        try:
            if group.key is None:
                self._lead_single(leader, predict)
            else:
                self._lead_batch(leader, group, predict)
        finally:
            leader.enter(DONE)
            self._release_slot()

    def _lead_single(self, ticket: Ticket, predict: Predict) -> None:
        """Run the only ticket of a group that no other request could join."""
        try:
            ticket.succeed(self._predict_alone(ticket.request, ticket.call, predict))
        except BaseException as error:  # includes SystemExit and panics of Rust extensions
            ticket.fail(error)

    def _lead_batch(self, leader: Ticket, group: Group, predict: Predict) -> None:
        """Wait for the delay, and run the tickets of the group."""
        leader.call.release_thread()
        group.wait_for_more()
        tickets = self._start_batch(leader, group)
        try:
            self._run_batch(tickets, predict)
        finally:
            for ticket in tickets:
                if ticket is not leader:
                    ticket.enter(DONE)
                    ticket.wake()

    def _start_batch(self, leader: Ticket, group: Group) -> list[Ticket]:
        """Close the group and return its tickets. From now on, none of them can leave."""
        with self._lock:
            self._close(group)
            for ticket in group.tickets:
                if ticket is not leader:
                    ticket.enter(RUNNING)
                    self._waiting -= 1
        return group.tickets

    def _run_batch(self, tickets: list[Ticket], predict: Predict) -> None:
        """Run the tickets together. If that fails, run them one by one."""
        active = tickets
        if len(tickets) > 1:  # a single one has just got its slot
            active = []
            for ticket in tickets:
                if not ticket.fail_if_obsolete():
                    active.append(ticket)
        if not active:
            return

        error = self._predict_together(active, predict)
        if error is None or len(active) == 1:
            return

        # One invalid request must not fail the others. After a time limit, no time is left.
        for ticket in active:
            if isinstance(error, PredictTimeout):
                ticket.fail(error)
            elif not ticket.fail_if_obsolete():
                error = self._predict_together([ticket], predict)

    def _predict_alone(self, request: InferenceRequest, call: Call, predict: Predict) -> Result:
        """Call `predict` for one request without a batch, and measure it."""
        if self._average_seconds >= SHORT_PREDICT_SECONDS:
            call.release_thread()
        started = monotonic()
        is_measured = True
        try:
            return predict(request, (call,))
        except NOT_MEASURED:
            is_measured = False
            raise
        finally:
            ended = 0.0  # the call then has no stage `predict`
            if is_measured:
                ended = monotonic()
                self.record_duration(ended - started)
            call.timings.record_predict(started, ended)

    def _predict_together(self, tickets: list[Ticket], predict: Predict) -> BaseException | None:
        """Call `predict` once for the tickets of a batch, and measure it.

        Each ticket gets its part of the result, or the error. Return the error. This never raises
        an exception.
        """
        calls = tuple(ticket.call for ticket in tickets)
        _record_batch_shares(tickets)
        started = monotonic()

        token = current_calls.set(calls)  # log records of predict() contain the ids of all requests
        error: BaseException | None = None
        try:
            result = predict(join_requests([ticket.request for ticket in tickets]), calls)
            parts = split_result(result, [ticket.rows for ticket in tickets])
            for ticket, part in zip(tickets, parts, strict=True):
                ticket.succeed(part)
        except BaseException as failure:  # includes SystemExit and panics of Rust extensions
            error = failure
            for ticket in tickets:
                ticket.fail(failure)
        finally:
            current_calls.reset(token)

        ended = 0.0
        if not isinstance(error, NOT_MEASURED):
            ended = monotonic()
            self.record_duration(ended - started)
        for call in calls:
            call.timings.record_predict(started, ended)
        return error

    def _release_slot(self) -> None:
        """Give the slot to the first waiting ticket whose client is connected, or free it."""
        with self._lock:
            while self._queue:
                group = self._queue[0]
                ticket = group.tickets[0]
                if ticket.call.is_active():
                    self._queue.popleft()
                    self._waiting -= 1
                    ticket.enter(LEADING)
                    ticket.wake()
                    return
                ticket.fail(_client_disconnected())
                self._leave(ticket, group)
                ticket.wake()
            self._free_slots += 1

    def _latest_start(self, ticket: Ticket) -> float:
        """Return the latest time at which predict() can start, to end before the deadline."""
        return ticket.call.deadline - DEADLINE_MARGIN * self._average_seconds

    def _overloaded(self) -> Overloaded:
        running = f"{self.concurrency} running (MAX_CONCURRENCY)"
        queued = f"{self._max_queued} queued (MAX_QUEUE_SIZE)"
        return Overloaded(f"server overloaded: {running} and {queued}", remedy="retry later")


def _record_batch_shares(tickets: list[Ticket]) -> None:
    """Tell each call its part of the batch."""
    total_rows = sum(ticket.rows for ticket in tickets)
    for ticket in tickets:
        is_first = ticket is tickets[0]
        ticket.call.join_batch(BatchShare(ticket.rows, total_rows, is_first))


def _deadline_exceeded() -> DeadlineExceeded:
    return DeadlineExceeded("Deadline exceeded: predict() could not finish in time.")


def _client_disconnected() -> ClientDisconnected:
    return ClientDisconnected("Client disconnected.")
