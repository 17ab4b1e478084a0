"""Scheduling of requests: their order, and rejection if the deadline cannot be met."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

from app.inference.batching import Result
from app.inference.call import INFER, Call
from app.inference.scheduler import Scheduler
from app.protocol.errors import DeadlineExceeded
from app.protocol.messages import InferenceRequest
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
