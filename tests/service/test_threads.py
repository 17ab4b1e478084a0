"""The threads of gRPC calls: they run what comes in its order, side by side, and live through what fails."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from queue import Queue

import pytest

from grpc_service.threads import Threads

SECONDS = 10


def test_calls_run_in_their_order() -> None:
    """One thread runs the calls as they were submitted; grpcio's callback is called for each."""
    done: Queue[int] = Queue()
    accepted = []
    threads = Threads(1, "test")
    for index in range(100):
        threads.submit(done.put, index).add_done_callback(accepted.append)
    assert [done.get(timeout=SECONDS) for _ in range(100)] == list(range(100))
    assert len(accepted) == 100


def test_calls_run_side_by_side() -> None:
    """As many calls run at once as there are threads."""
    meeting = threading.Barrier(4)
    threads = Threads(4, "test")
    passed: Queue[int] = Queue()
    for _ in range(4):
        threads.submit(lambda: passed.put(meeting.wait(SECONDS)))
    assert sorted(passed.get(timeout=SECONDS) for _ in range(4)) == [0, 1, 2, 3]


def test_a_call_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The thread lives on, and the log has the traceback."""
    done: Queue[int] = Queue()
    threads = Threads(1, "test")
    with caplog.at_level(logging.ERROR):
        threads.submit(lambda: 1 / 0)
        threads.submit(done.put, 1)
        assert done.get(timeout=SECONDS) == 1
    assert "ZeroDivisionError" in caplog.text


def test_a_request_is_not_kept() -> None:
    """What a call was given is gone when it is done, not when the next one comes."""

    class Body:
        pass

    body, done = Body(), threading.Event()
    gone = threading.Event()
    weakref.finalize(body, gone.set)
    Threads(1, "test").submit(lambda body: done.set(), body)
    del body
    assert done.wait(SECONDS)
    gc.collect()
    assert gone.wait(SECONDS)
