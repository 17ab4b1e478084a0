"""Workers and child processes that fail or end."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import signal
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from app.server.shared_state import PLACES, READY, STARTING, STOPPING, SharedState
from tests.kit.processes import gunicorn, python_path, wait_for, workers
from tests.kit.projects import edit, make_project
from tests.kit.waiting_client import ROOT, serve


def test_state_of_a_worker_never_goes_back() -> None:
    """All processes see the state of a worker, which never goes back, until a new worker gets its place."""
    shared = SharedState()
    for state in (STOPPING, READY):
        (
            child := multiprocessing.get_context("fork").Process(
                target=shared.set_state, args=(1, state)
            )
        ).start()
        child.join()
    assert shared.state(1) == STOPPING
    assert not shared.has_ready()
    for state in (STARTING, READY):
        shared.set_state(1 + PLACES, state)
    assert shared.has_ready()


def test_killed_worker_is_replaced(stack: ExitStack, tmp_path: Path) -> None:
    """If a worker is killed, a new one replaces it, and the service stays ready."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    lost, *_ = before = workers(client.service)
    os.kill(lost, signal.SIGKILL)
    wait_for(lambda: client.ready_workers() == 3)
    assert len(workers(client.service) - before) == 1
    for _ in range(20):
        assert client.ready() == {True}


@pytest.mark.parametrize("word", ["return {'y': x}", "raise ValueError"])
def test_process_that_predict_forks_takes_no_requests(
    stack: ExitStack, tmp_path: Path, word: str
) -> None:
    """A process that predict() forks takes no requests from the worker, even if it leaves predict()."""
    project = make_project(tmp_path / "project")
    forks = f"import os\n    if x[0] == 7 and not os.fork():\n        {word}\n    return"
    edit(project, "    return {", f"    {forks} {{")
    service = stack.enter_context(gunicorn(project, WORKERS=1))
    client = stack.enter_context(
        closing(http.client.HTTPConnection(service.http_address, timeout=5))
    )
    (worker,) = workers(service)
    stack.callback(lambda: [os.kill(pid, signal.SIGKILL) for pid in alive_children(worker)])
    for value in (7, 1, 7, 2, 3, 4):
        assert added(client, value) == value + 0.5


def test_child_process_keeps_no_connection_open(stack: ExitStack, tmp_path: Path) -> None:
    """If a worker is killed, its connections close even if a child process of the model still runs."""
    project = make_project(tmp_path / "project")
    edit(
        project,
        "    return {",
        "    import os, time\n    if not os.fork():\n        time.sleep(60)\n    return {",
    )
    edit(project, "def predict", "def warm_up(model):\n    pass\n\n\ndef predict")
    service = stack.enter_context(gunicorn(project, WORKERS=1))
    client = stack.enter_context(
        closing(http.client.HTTPConnection(service.http_address, timeout=5))
    )
    wait_for(
        lambda: service.ready_count() == 1
    )  # otherwise the master takes the end of the worker for a failed start
    (worker,) = workers(service)
    assert added(client, 1) == 1.5
    (child,) = alive_children(worker)
    stack.callback(os.kill, child, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    assert client.sock.recv(1) == b""


def added(client: http.client.HTTPConnection, value: float) -> float:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [value]}
    client.request("POST", "/v2/models/adder/infer", json.dumps({"inputs": [tensor]}))
    return json.loads(client.getresponse().read())["outputs"][0]["data"][0]


def alive_children(process: int) -> list[int]:
    """Return the child processes of all its threads that have not ended."""
    children: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread ended after iterdir()
            children += map(int, (thread / "children").read_text().split())
    return [child for child in children if is_alive(child)]


def is_alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_ready_worker_with_start_failure_status_is_replaced(
    stack: ExitStack, tmp_path: Path
) -> None:
    """A ready worker that exits with gunicorn's status for a failed start is replaced."""
    client = serve(stack, tmp_path, WORKERS=1)
    wait_for(
        lambda: client.ready_workers() == 1
    )  # probes succeed a moment before the master can know it
    with pytest.raises((OSError, http.client.HTTPException)):
        client.infer("rest", "exit")
    wait_for(lambda: client.ready_workers() == 2)
    assert "failed to start" not in client.service.log()


ENDS = {
    "SystemExit": "SystemExit: no such thing",
    "KeyboardInterrupt": "KeyboardInterrupt: no such thing",
    "exit": "A worker ended before it was ready, without an error message",
}


@pytest.mark.parametrize("word", ENDS)
def test_worker_that_ends_before_it_is_ready(stack: ExitStack, tmp_path: Path, word: str) -> None:
    """If a new worker ends before it is ready, a reload keeps the old workers, and a start fails."""
    client = serve(stack, tmp_path, "conditional_load_error", WORKERS=1)
    before = workers(client.service)
    (tmp_path / "broken").write_text(word)
    client.service.process.send_signal(signal.SIGHUP)
    message = f"New worker failed to start: {ENDS[word]}"
    wait_for(lambda: message in client.service.log() and workers(client.service) == before)
    assert client.ready() == {True}
    with (
        pytest.raises(AssertionError, match=f"(?s)exited with [1-9].*Cannot start: {ENDS[word]}\n"),
        gunicorn(ROOT, "tests.service.apps:conditional_load_error()", FOLDER=tmp_path, WORKERS=2),
    ):
        pass


def test_failed_worker_does_not_stop_service_while_another_loads(
    stack: ExitStack, tmp_path: Path
) -> None:
    """A service that was ready does not stop if one new worker fails while another is still loading."""
    client = serve(stack, tmp_path, "conditional_load_error", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    (tmp_path / "broken").write_text("first")
    for worker in workers(client.service):
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: "New worker failed to start: load() failed: Run" in client.service.log())
    (tmp_path / "model").touch()
    wait_for(lambda: client.ready_workers() == 4)
    assert client.infer("grpc") == "ok"


def test_failed_fork_keeps_old_workers(stack: ExitStack, tmp_path: Path) -> None:
    """If a reload cannot fork a worker, the old workers keep serving, and a later reload succeeds."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nfork = os.fork\n"
        f"def refusing():\n    if os.path.exists({str(tmp_path / 'full')!r}):\n"
        "        raise BlockingIOError(11, 'Resource temporarily unavailable')\n    return fork()\n"
        "os.fork = refusing\n"
    )
    client = serve(stack, tmp_path, "numbers", WORKERS=2, PYTHONPATH=python_path(tmp_path))
    before = workers(client.service)
    (tmp_path / "full").touch()
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "Cannot fork a worker: [Errno 11]" in client.service.log())
    assert workers(client.service) == before
    assert client.ready() == {True}
    (tmp_path / "full").unlink()
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: len(workers(client.service)) == 2 and not workers(client.service) & before)
