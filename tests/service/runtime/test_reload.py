"""A reload replaces the workers and loses no requests."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from oip_conformance.wires import Grpc
from tests.kit.processes import gunicorn, wait_for, workers
from tests.kit.projects import make_project
from tests.kit.scrapes import scrape
from tests.kit.waiting_client import Load, is_live, serve
from tests.service.runtime.commands import post_on_new_connection


def test_reload_loses_no_requests(stack: ExitStack, tmp_path: Path) -> None:
    """SIGHUP under load replaces all workers without a failed request, and the service stays ready."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2, SHUTDOWN_DELAY_SECONDS=5)
    wait_for(lambda: client.ready_workers() == 2)
    load = Load(client, stack)
    for _ in range(2):
        before = workers(client.service)
        client.service.process.send_signal(signal.SIGHUP)
        wait_for(
            lambda before=before: (
                len(workers(client.service)) == 2 and not before & workers(client.service)
            )
        )
        assert client.ready() == {True}
    kinds = load.stop()
    assert set(kinds) <= {"ok", "refused"}, kinds
    assert kinds["ok"] > 100
    assert set(load.probes) == {200}, load.probes


def test_second_reload_replaces_loading_worker(stack: ExitStack, tmp_path: Path) -> None:
    """A second SIGHUP replaces the new worker that is still loading, and the old worker keeps serving."""
    client = serve(stack, tmp_path, "loading", WORKERS=1, is_ready=is_live)
    (tmp_path / "loaded").touch()
    wait_for(lambda: client.ready() == {True})
    (old,) = workers(client.service)
    (tmp_path / "loaded").unlink()
    for _ in range(2):
        before = workers(client.service)
        (tmp_path / "load.begun").unlink()
        client.service.process.send_signal(signal.SIGHUP)
        wait_for((tmp_path / "load.begun").exists)
        wait_for(
            lambda before=before: (
                len(workers(client.service) - before) == 1 and len(workers(client.service)) == 2
            )
        )
        assert old in workers(client.service)
        assert client.ready() == {True}
    (tmp_path / "loaded").touch()
    wait_for(lambda: len(workers(client.service)) == 1 and old not in workers(client.service))
    assert client.ready() == {True}


def test_grpc_client_moves_to_new_worker_during_long_call(stack: ExitStack, tmp_path: Path) -> None:
    """A gRPC client reaches the new worker while the old one finishes a long call of another client."""
    client = serve(stack, tmp_path, WORKERS=1)
    other = stack.enter_context(client.service.own_channel())
    assert Grpc(other).call("ServerLive").live
    (old,) = workers(client.service)
    running = client.begin("grpc", "long")
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: client.ready_workers() == 2)
    client.channel = other
    later = client.wait("grpc", "later")
    wait_for(lambda: client.has_begun("later"))
    assert old in workers(client.service)
    (tmp_path / "go").touch()
    assert (running.result(), later.result()) == ("ok", "ok")


def test_old_worker_sends_heartbeats_during_long_call(stack: ExitStack, tmp_path: Path) -> None:
    """An old worker sends heartbeats while it finishes a gRPC call, so that gunicorn does not kill it."""
    client = serve(stack, tmp_path, WORKERS=1)
    (old,) = workers(client.service)
    running = client.begin("grpc", "long")
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: client.ready_workers() == 2)
    now = time.monotonic()
    wait_for(lambda: last_sign(old) > now + 3)
    (tmp_path / "go").touch()
    assert running.result() == "ok"
    wait_for(lambda: old not in workers(client.service))


def last_sign(pid: int) -> float:
    """Return the time of the worker's last heartbeat, by time.monotonic(), from its file in /dev/shm."""
    last_change = 0.0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed after iterdir()
            if "wgunicorn" in os.readlink(file):
                last_change = max(last_change, file.stat().st_mtime)
    return last_change


# On a busy machine, other processes take the PID again and again. It also needs root.
@pytest.mark.slow
def test_reload_stops_worker_with_reused_pid(stack: ExitStack, tmp_path: Path) -> None:
    """A reload stops a worker whose PID belonged to an earlier worker."""
    client = serve(stack, tmp_path, "numbers", WORKERS=1)
    (first,) = before = workers(client.service)

    def replace() -> set[int]:
        client.service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(workers(client.service)) == 1 and not workers(client.service) & before)
        return workers(client.service)

    before = replace()
    while before != {first}:
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
        except OSError:
            pytest.skip("only root can choose the PID of the next process")
        before = replace()
    replace()


@pytest.mark.parametrize("text", ["broken", "broken in {pid}"])
def test_failed_reload_keeps_old_workers(stack: ExitStack, tmp_path: Path, text: str) -> None:
    """If load() fails after SIGHUP, the first reason is logged, and the old workers keep serving."""
    client = serve(stack, tmp_path, "conditional_load_error", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    before = workers(client.service)
    (tmp_path / "broken").write_text(text)
    client.service.process.send_signal(signal.SIGHUP)
    message = "New worker failed to start: load() failed: RuntimeError: broken"
    wait_for(lambda: client.service.log().count(message) == 1 and workers(client.service) == before)
    assert client.service.log().count(message) == 1
    assert client.service.log().count("Traceback") == 1
    assert client.ready() == {True}
    assert client.infer("rest") == "ok"
    wait_for(lambda: scrape(client.service)("inference_workers") == 2)


def test_failed_port_setup_keeps_old_worker(stack: ExitStack, tmp_path: Path) -> None:
    """If a new worker loads its model but cannot open its ports, it logs the error, and the old worker stays."""
    keys = tmp_path / "keys.txt"
    keys.write_text("a-key-0123456789-0123456789\n")
    (tmp_path / "loaded").touch()
    client = serve(stack, tmp_path, "loading", WORKERS=1, API_KEYS_FILE=keys)
    before = workers(client.service)
    for name in ("loaded", "load.begun"):
        (tmp_path / name).unlink()
    client.service.process.send_signal(signal.SIGHUP)
    wait_for((tmp_path / "load.begun").exists)
    keys.rename(tmp_path / "away")
    (tmp_path / "loaded").touch()
    message = "New worker failed to start: Opening the ports failed: FileNotFoundError"
    wait_for(lambda: message in client.service.log() and workers(client.service) == before)
    (tmp_path / "away").rename(keys)
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: client.ready_workers() == 2 and not workers(client.service) & before)


def test_reload_ignores_preload(tmp_path: Path) -> None:
    """If gunicorn.conf.py enables gunicorn's --preload, a reload logs an error, and still loads the model again."""
    project = make_project(tmp_path)
    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    with gunicorn(project, PYTHONPATH=project) as service:
        before = workers(service)
        with (project / "gunicorn.conf.py").open("a") as file:
            file.write("\npreload_app = True\n")
        (project / "model/term.txt").write_text("4")

        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(workers(service)) == 1 and not before & workers(service))

        _, response = post_on_new_connection(service, request, "/v2/models/adder/infer")
        assert response["outputs"][0]["data"] == [5]
        assert "Ignored --preload (preload_app): not available" in service.log()
