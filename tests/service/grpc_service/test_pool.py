"""The thread pool of gRPC: order, concurrency and failures of calls."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import pytest

from app.inference.memory_budget import MemoryBudget
from grpc_service import pool
from grpc_service.pool import Pool, create_pool

SECONDS = 10
ROOT = Path(__file__).parents[3]


def test_calls_run_in_order() -> None:
    """One thread runs the calls in the order of submission, and grpcio's callback is called for each."""
    done: Queue[int] = Queue()
    accepted = []
    threads = Pool(1, MemoryBudget())
    for index in range(100):
        threads.submit(done.put, index).add_done_callback(accepted.append)
    assert [done.get(timeout=SECONDS) for _ in range(100)] == list(range(100))
    assert len(accepted) == 100


def test_calls_run_concurrently() -> None:
    """The pool runs as many calls at once as it has threads."""
    meeting = threading.Barrier(4)
    threads = Pool(4, MemoryBudget())
    passed: Queue[int] = Queue()
    for _ in range(4):
        threads.submit(lambda: passed.put(meeting.wait(SECONDS)))
    assert sorted(passed.get(timeout=SECONDS) for _ in range(4)) == [0, 1, 2, 3]


def test_failed_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If a call raises an exception, its thread continues, and the log has the traceback."""
    done: Queue[int] = Queue()
    threads = Pool(1, MemoryBudget())
    with caplog.at_level(logging.ERROR):
        threads.submit(lambda: 1 / 0)
        threads.submit(done.put, 1)
        assert done.get(timeout=SECONDS) == 1
    assert "ZeroDivisionError" in caplog.text


def test_failed_start_of_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be started, the others run the calls, and more are started when possible."""
    threads = Pool(4, MemoryBudget())
    start = threading.Thread.start
    done: Queue[int] = Queue()
    meeting = threading.Barrier(2)
    threads.submit(done.put, 0)
    assert done.get(timeout=SECONDS) == 0

    def fail_to_start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail_to_start)

    gate = threading.Event()
    threads.submit(gate.wait, SECONDS)
    for index in range(1, 4):
        threads.submit(done.put, index)
    gate.set()
    assert [done.get(timeout=SECONDS) for _ in range(3)] == [1, 2, 3]

    monkeypatch.setattr(threading.Thread, "start", start)
    for _ in range(2):
        threads.submit(lambda: done.put(meeting.wait(SECONDS)))
    assert sorted(done.get(timeout=SECONDS) for _ in range(2)) == [0, 1]


def test_arguments_are_released_after_call() -> None:
    """The arguments of a call are released when it ends, not when the next one starts."""

    class Body:
        pass

    body = Body()
    is_done = threading.Event()
    is_released = threading.Event()
    weakref.finalize(body, is_released.set)

    Pool(1, MemoryBudget()).submit(lambda body: is_done.set(), body)
    del body

    assert is_done.wait(SECONDS)
    gc.collect()
    assert is_released.wait(SECONDS)


@pytest.mark.parametrize(
    "change",
    [
        "del _server._status",
        "del _server._RECEIVE_MESSAGE_TOKEN",
        "_server._abort = lambda state, code: None",
        "_server._status = dict",  # has no signature
        "_server.cygrpc = object()",
        "_server._RPCState = object",
        "_server._unary_request = lambda rpc_event: None",
    ],
)
def test_private_names_of_grpcio_are_checked(change: str) -> None:
    """The import of the pool checks the private names of grpcio and their parameters."""
    code = f"from grpc import _server; {change}; from grpc_service import pool; print(pool.IS_SUPPORTED)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_unsupported_grpcio(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a release of grpcio lacks a private name, the standard pool is used, with one warning."""
    assert isinstance(create_pool(1, MemoryBudget()), Pool)
    with create_pool(1, MemoryBudget(), is_custom=False) as standard:
        assert isinstance(standard, ThreadPoolExecutor)
    assert not caplog.records
    monkeypatch.setattr(pool, "IS_SUPPORTED", False)
    with create_pool(1, MemoryBudget()) as standard:
        assert isinstance(standard, ThreadPoolExecutor)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
