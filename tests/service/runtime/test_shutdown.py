"""Shutdown, and an upgrade in place."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.processes import (
    gunicorn,
    local_settings,
    started,
    stop_other_master,
    wait_for,
    workers,
)
from tests.kit.waiting_client import BOTH, ROOT, Client, Load, serve


def test_shutdown_loses_no_requests(stack: ExitStack, tmp_path: Path) -> None:
    """During a shutdown under load, each request either succeeds or is rejected."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2, SHUTDOWN_DELAY_SECONDS=0.5)
    load = Load(client, stack)
    wait_for(lambda: load.kinds["ok"] > 100)
    client.service.process.send_signal(signal.SIGTERM)
    assert client.service.process.wait(60) == 0
    kinds = load.stop()
    assert set(kinds) <= {"ok", "refused"}, kinds


def test_threads_of_model_do_not_delay_shutdown(tmp_path: Path) -> None:
    """A worker exits without SIGKILL even if the model has started non-daemon threads."""
    (tmp_path / "broken").write_text("threads")
    settings = {"FOLDER": tmp_path, "WORKERS": 1, "SHUTDOWN_TIMEOUT_SECONDS": 1}
    with gunicorn(ROOT, "tests.service.apps:conditional_load_error()", **settings) as service:
        pass
    assert "Worker exiting" in service.last_words
    assert "SIGKILL" not in service.last_words


@pytest.mark.parametrize("heir_stays", [True, False])
def test_upgrade_in_place(stack: ExitStack, tmp_path: Path, heir_stays: bool) -> None:
    """SIGUSR2 starts a second master on the same sockets, and if either stops, the other keeps serving."""
    script = Path(sys.executable).with_name(
        "gunicorn"
    )  # `python -m gunicorn` cannot re-execute itself
    settings = local_settings(SHUTDOWN_DELAY_SECONDS=1, FOLDER=tmp_path)
    (tmp_path / "go").touch()
    command = [sys.executable, script, "tests.service.apps:waiting()", "--workers", "1"]
    service = stack.enter_context(started(command, ROOT, settings))
    client = Client(service, tmp_path, stack)
    old = workers(service)
    service.process.send_signal(signal.SIGUSR2)
    wait_for(lambda: client.ready_workers() == 2)
    (new_service,) = workers(service) - old
    if heir_stays:
        stack.callback(stop_other_master, new_service)
        service.process.terminate()
        assert service.process.wait(60) == 0
    else:
        stop_other_master(new_service)
        wait_for(lambda: workers(service) == old)
    assert [client.infer(protocol, "later") for protocol in BOTH for _ in range(3)] == ["ok"] * 6
