"""Scheduling of requests: their order, and rejection if the deadline cannot be met."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import monotonic

import pytest

from app.inference.batching import Result
from app.inference.call import INFER, Call
from app.inference.scheduler import BatchLimits, Scheduler
from app.protocol.errors import DeadlineExceeded
from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput, ResponseOutput
from tests.kit.processes import wait_for

REQUEST = InferenceRequest([])


def run(scheduler: Scheduler, work: Callable[[], object], seconds: float | None = None) -> None:
    """Run `work` as the call of predict() for a request, with a deadline in `seconds`."""
    call = Call(INFER)
    if seconds is not None:
        call.set_deadline(monotonic() + seconds)

    def predict(request: InferenceRequest, calls: tuple[Call, ...]) -> Result:
        work()
        return {}, {}

    scheduler.run(REQUEST, call, predict)


@contextmanager
def waiting(
    scheduler: Scheduler, name: str, done: list[str], seconds: float | None = None
) -> Iterator[None]:
    """Queue a request in a thread. `done` gets its name when it runs, or when it is late."""
    before = scheduler.in_flight

    def run_request() -> None:
        try:
            run(scheduler, lambda: done.append(name), seconds)
        except DeadlineExceeded:
            done.append(f"{name} is late")

    thread = threading.Thread(target=run_request)
    thread.start()
    wait_for(lambda: scheduler.in_flight > before or not thread.is_alive())
    yield
    thread.join()


def test_runs_queued_requests_first() -> None:
    """Queued requests run before a later one, even if that one asks for the free slot first."""
    scheduler = Scheduler(1, 8)
    done: list[str] = []
    with ExitStack() as threads:

        def first() -> None:
            for name in ("second", "third"):
                threads.enter_context(waiting(scheduler, name, done))

        run(scheduler, first)
        run(scheduler, lambda: done.append("last"))
    assert done == ["second", "third", "last"]


def test_rejects_requests_that_cannot_meet_their_deadline() -> None:
    """A request is rejected without waiting if predict() takes longer on average than its deadline allows."""
    scheduler = Scheduler(1, 8)
    scheduler.record_duration(60_000)
    done: list[str] = []

    def busy() -> None:
        with waiting(scheduler, "hasty", done, seconds=3000):
            wait_for(lambda: bool(done))

    run(scheduler, busy)
    assert done == ["hasty is late"]


class SlowRelease:
    """A lock. After a release in the thread `slow`, that thread waits for an event."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.slow: threading.Thread | None = None
        self.can_go_on = threading.Event()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()
        if threading.current_thread() is self.slow:
            self.can_go_on.wait()


class ReleasedCall(Call):
    """A call that knows whether its thread begins to wait."""

    def __init__(self) -> None:
        super().__init__(INFER)
        self.begins_to_wait = threading.Event()

    def release_thread(self) -> None:
        self.begins_to_wait.set()


def test_run_that_starts_before_a_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request gets its result, even if its batch runs before its own thread begins to wait."""
    scheduler = Scheduler(1, 8, BatchLimits(rows=2, delay_seconds=0.0))
    lock = SlowRelease()
    monkeypatch.setattr(scheduler, "_lock", lock)
    request = InferenceRequest([RequestInput("x", "FP32", data=[1.0])])
    calls = [ReleasedCall() for _ in range(3)]
    results = []
    is_running = threading.Event()
    can_end = threading.Event()

    def predict(request: InferenceRequest, calls_of_run: tuple[Call, ...]) -> Result:
        if len(calls_of_run) == 1:
            is_running.set()
            can_end.wait()
        else:
            lock.can_go_on.set()
            wait_for(lambda: calls[2].begins_to_wait.is_set() or not threads[2].is_alive())
        rows = len(request.inputs[0].data)
        return {"y": ResponseOutput("y", "FP32", data=[1.0] * rows)}, {}

    def run_request(call: Call) -> None:
        results.append(scheduler.run(request, call, predict))

    # The first request occupies the slot. The others wait, and form a batch.
    threads = [threading.Thread(target=run_request, args=[call]) for call in calls]
    lock.slow = threads[2]
    for in_flight, thread in enumerate(threads, start=1):
        thread.start()
        is_running.wait()
        wait_for(partial(is_in_flight, scheduler, in_flight))
    can_end.set()
    for thread in threads:
        thread.join()

    assert [list(outputs) for outputs, _ in results] == [["y"]] * 3


def is_in_flight(scheduler: Scheduler, count: int) -> bool:
    return scheduler.in_flight == count
