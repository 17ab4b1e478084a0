"""Who is let in, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from app.admission import Admission
from app.call import Call
from app.errors import DeadlineExceeded
from tests.service.processes import wait_for


@contextmanager
def waiting(admission: Admission, name: str, done: list[str], timeout: float | None = None) -> Iterator[None]:
    """A request in a thread of its own that waits, or has given up; it notes what becomes of it."""
    inside = admission.inside

    def run() -> None:
        try:
            admission.run(done.append, name, call=Call("infer"), timeout=timeout)
        except DeadlineExceeded:
            done.append(f"{name} is late")

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: admission.inside > inside or not thread.is_alive())
    yield
    thread.join()


def test_first_come_first_served() -> None:
    """Who waits runs before who comes later, even where that one is quicker to take the slot that has become free."""
    admission = Admission(1, 8)
    done: list[str] = []
    with ExitStack() as threads:

        def first() -> None:
            for name in ("second", "third"):
                threads.enter_context(waiting(admission, name, done))

        admission.run(first, call=Call("infer"), timeout=None)
        admission.run(done.append, "last", call=Call("infer"), timeout=None)
    assert done == ["second", "third", "last"]


def test_what_cannot_be_answered_in_time_does_not_wait() -> None:
    """A request whose deadline is nearer than what predict() takes on average is told so, and never run."""
    admission = Admission(1, 8)
    admission.seconds = 6000
    done: list[str] = []

    def busy() -> None:
        with waiting(admission, "hasty", done, timeout=3000):
            wait_for(lambda: bool(done))

    admission.run(busy, call=Call("infer"), timeout=None)
    assert done == ["hasty is late"]
