"""Admission of requests: their order, and rejection if the deadline cannot be met."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from app.inference.admission import Admission
from app.inference.request_context import RequestContext
from app.protocol.errors import DeadlineExceeded
from tests.kit.processes import wait_for


@contextmanager
def waiting(
    admission: Admission, name: str, done: list[str], timeout: float | None = None
) -> Iterator[None]:
    """Run a queued request in its own thread and record in `done` whether it ran or missed its deadline."""
    inside, context = admission.in_flight, RequestContext("infer")
    context.timeout = timeout

    def run() -> None:
        try:
            admission.run(done.append, name, context=context)
        except DeadlineExceeded:
            done.append(f"{name} is late")

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: admission.in_flight > inside or not thread.is_alive())
    yield
    thread.join()


def test_runs_queued_requests_first() -> None:
    """Queued requests run before a later request, even if the later one asks for the free slot first."""
    admission = Admission(1, 8)
    done: list[str] = []
    with ExitStack() as threads:

        def first() -> None:
            for name in ("second", "third"):
                threads.enter_context(waiting(admission, name, done))

        admission.run(first, context=RequestContext("infer"))
        admission.run(done.append, "last", context=RequestContext("infer"))
    assert done == ["second", "third", "last"]


def test_rejects_requests_that_cannot_meet_their_deadline() -> None:
    """A request is rejected without waiting if its deadline is nearer than the average duration of predict()."""
    admission = Admission(1, 8)
    admission.average_seconds = 6000
    done: list[str] = []

    def busy() -> None:
        with waiting(admission, "hasty", done, timeout=3000):
            wait_for(lambda: bool(done))

    admission.run(busy, context=RequestContext("infer"))
    assert done == ["hasty is late"]
