"""unload() of predict.py, which each worker calls at a graceful stop."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.processes import local_settings, started, wait_for, workers
from tests.kit.projects import edit, make_project
from tests.kit.waiting_client import BOTH, is_live, serve

UNLOAD = """def unload(model):
    print(f"unloaded {model}")


def predict("""


@pytest.mark.parametrize(
    "settings",
    [{}, {"GUNICORN_CMD_ARGS": "-k gthread"}],
    ids=["default", "gthread"],
)
def test_unload_follows_last_request(
    stack: ExitStack, tmp_path: Path, settings: dict[str, str]
) -> None:
    """After its last request, each worker calls unload() once. Its exception is logged, and the exit status is 0."""
    client = serve(stack, tmp_path, "unloading", WORKERS=2, **settings)
    wait_for(lambda: len(workers(client.service)) == 2)
    pids = sorted(workers(client.service))
    running = [client.begin(protocol, protocol) for protocol in BOTH]
    client.service.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "Handling signal: term" in client.service.log())
    (tmp_path / "go").touch()
    assert {call.result() for call in running} == {"ok"}
    assert client.service.process.wait(60) == 0
    assert sorted(map(int, (tmp_path / "unloads").read_text().split())) == pids
    assert client.service.log().count("RuntimeError: unload() has failed") == 2


def test_no_unload_while_a_request_runs(stack: ExitStack, tmp_path: Path) -> None:
    """If a request is still running after SHUTDOWN_TIMEOUT_SECONDS, unload() is not called, and the log shows it."""
    client = serve(stack, tmp_path, "unloading", WORKERS=1, SHUTDOWN_TIMEOUT_SECONDS=0)
    running = client.begin("grpc", "running")
    client.service.process.send_signal(signal.SIGTERM)
    assert client.service.process.wait(60) == 0
    assert running.result() == "UNAVAILABLE"
    assert "Requests have not finished. Exiting without unload()" in client.service.log()
    assert not (tmp_path / "unloads").exists()


def test_no_unload_before_the_model_is_loaded(stack: ExitStack, tmp_path: Path) -> None:
    """If the service stops while load() runs, unload() is not called."""
    (tmp_path / "slow").touch()
    client = serve(stack, tmp_path, "unloading", WORKERS=1, is_ready=is_live)
    wait_for(lambda: (tmp_path / "load.begun").exists())
    client.service.process.send_signal(signal.SIGTERM)
    assert client.service.process.wait(60) == 0
    assert "unload()" not in client.service.log()
    assert not (tmp_path / "unloads").exists()


def test_unload_in_standalone_grpc(tmp_path: Path) -> None:
    """`python -m grpc_service` calls unload() with the result of load(), and logs the progress of load()."""
    edit(make_project(tmp_path), "def predict(", UNLOAD)
    command = [sys.executable, "-um", "grpc_service"]
    with started(
        command, tmp_path, local_settings(), lambda running: "adder is ready on" in running.log()
    ) as service:
        assert "Loading the model\n" in service.log()
        assert "Loaded the model in " in service.log()
        assert "unloaded" not in service.log()
    assert service.process.returncode == 0
    assert service.last_words.count("unloaded 0.5\n") == 1
