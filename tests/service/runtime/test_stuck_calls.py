"""PREDICT_TIMEOUT_SECONDS: a call of predict() that does not return, and the replacement of its worker."""

from __future__ import annotations

import http.client
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from oip_conformance.wires import Grpc
from tests.kit.processes import gunicorn, wait_for, workers
from tests.kit.scrapes import scrape
from tests.kit.waiting_client import BOTH, Client, Load
from tests.service.apps import HOLDING_GIL, STUCK
from tests.service.runtime.commands import ROOT, post_on_new_connection, start


def serve(stack: ExitStack, folder: Path, **settings: Any) -> Client:
    """Return a client of a service with one worker."""
    app = "tests.service.apps:stuck()"
    return Client(
        stack.enter_context(gunicorn(ROOT, app, FOLDER=folder, WORKERS=1, **settings)),
        folder,
        stack,
    )


def message(seconds: int) -> str:
    return f"predict() took longer than {seconds} s (PREDICT_TIMEOUT_SECONDS)"


def timed_out(seconds: int) -> dict[str, tuple[int | str, str]]:
    """Return the status and the error message of a stuck call, by protocol."""
    text = f"Deadline exceeded: {message(seconds)}."
    return {"rest": (504, text), "grpc": ("DEADLINE_EXCEEDED", text)}


def infer(client: Client, protocol: str, value: float) -> tuple[int | str, str]:
    """Return the status and the error message."""
    if protocol == "grpc":
        response = Grpc(client.channel, timeout=None).infer(
            [("x", "FP32", [1], [value])]
        )  # a deadline ends the delay
        return response.kind, response.text
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [value]}
    status, body = post_on_new_connection(client.service, {"inputs": [tensor]})
    return status, body.get("error", "")


def test_worker_with_stuck_calls_is_replaced_without_outage(
    stack: ExitStack, tmp_path: Path
) -> None:
    """Stuck calls of both protocols get an error. The only worker is replaced once, without a lost request."""
    client = serve(stack, tmp_path, PREDICT_TIMEOUT_SECONDS=2, MAX_CONCURRENCY=8)
    (old,) = workers(client.service)
    load = Load(client, stack)
    (tmp_path / "wait").touch()
    (tmp_path / "load.begun").unlink()
    calls = {protocol: client.pool.submit(infer, client, protocol, STUCK) for protocol in BOTH}
    assert {protocol: call.result() for protocol, call in calls.items()} == timed_out(2)
    wait_for((tmp_path / "load.begun").exists)
    done = load.kinds["ok"]
    wait_for(lambda: load.kinds["ok"] > done + 100)
    (tmp_path / "wait").unlink()
    wait_for(lambda: len(workers(client.service)) == 1 and old not in workers(client.service))
    assert load.stop().keys() <= {"ok", "refused"}, load.kinds
    assert load.probes.keys() == {200}, load.probes
    assert client.ready_workers() == 2
    wait_for(lambda: scrape(client.service)("inference_predict_timeouts_total") == 2)
    error = (
        rf"ERROR app\S+ \[\w+\]: {re.escape(message(2))}\n(?: {{4}}.*\n)*.*in predict\n.*wait\(\)\n"
    )
    assert len(re.findall(error, client.service.log())) == 2
    assert (
        "Exiting without unload()" in client.service.log()
    )  # the stuck calls may still use the model
    assert "SIGKILL" not in client.service.log()


def test_running_request_completes_in_replaced_worker(stack: ExitStack, tmp_path: Path) -> None:
    """A worker with a stuck call finishes its other requests."""
    client = serve(stack, tmp_path, PREDICT_TIMEOUT_SECONDS=1)
    before = workers(client.service)
    running = client.pool.submit(client.get, "/hold/long")
    wait_for((tmp_path / "long").exists)
    assert infer(client, "rest", STUCK) == timed_out(1)["rest"]
    wait_for(lambda: client.ready_workers() == 2)
    assert before < workers(client.service)
    (tmp_path / "go").touch()
    assert running.result() == 200
    wait_for(lambda: len(workers(client.service)) == 1 and not before & workers(client.service))


def test_stuck_batch(stack: ExitStack, tmp_path: Path) -> None:
    """All requests of a stuck batch get the error, and none runs again. The worker, gunicorn's own, is replaced."""
    batches = {"MAX_CONCURRENCY": 1, "MAX_BATCH_SIZE": 2, "MAX_BATCH_DELAY_MS": 60_000}
    settings = {"PREDICT_TIMEOUT_SECONDS": 1, "DISABLE_OPTIMIZATIONS": "worker", **batches}
    client = serve(stack, tmp_path, **settings)
    calls = {"rest": STUCK, "grpc": 1.0}
    sent = {
        protocol: client.pool.submit(infer, client, protocol, value)
        for protocol, value in calls.items()
    }
    assert {protocol: call.result() for protocol, call in sent.items()} == timed_out(1)
    wait_for(lambda: scrape(client.service)("inference_predict_timeouts_total") == 1)
    wait_for(lambda: client.ready_workers() == 2)
    assert (tmp_path / "calls").read_text() == "2\n"


def test_replacement_without_rolling_reload(stack: ExitStack, tmp_path: Path) -> None:
    """gunicorn's own arbiter replaces a worker with a stuck call, too."""
    settings = {"PREDICT_TIMEOUT_SECONDS": 1, "DISABLE_OPTIMIZATIONS": "rolling_reload"}
    client = serve(stack, tmp_path, **settings)
    (old,) = workers(client.service)
    assert infer(client, "grpc", STUCK) == timed_out(1)["grpc"]
    wait_for(lambda: client.ready_workers() == 2 and old not in workers(client.service))
    assert infer(client, "rest", 1) == (200, "")


def test_call_that_holds_the_gil(stack: ExitStack, tmp_path: Path) -> None:
    """gunicorn kills a worker whose call holds the GIL. The log contains its stack, and a new worker serves."""
    settings = {"PREDICT_TIMEOUT_SECONDS": 1, "GUNICORN_CMD_ARGS": "--timeout 20"}
    client = serve(stack, tmp_path, **settings)
    with pytest.raises((OSError, http.client.HTTPException)):
        infer(client, "rest", HOLDING_GIL)
    wait_for(lambda: client.ready_workers() == 2)
    assert infer(client, "rest", 1) == (200, "")
    log = client.service.log()
    assert re.search(
        r"Fatal Python error: Aborted\n(.*\n)*  File .*apps.py\", line \d+ in predict\n", log
    )


def test_heartbeat_limit_exceeds_predict_timeout() -> None:
    """A call may hold the GIL for PREDICT_TIMEOUT_SECONDS before gunicorn kills its worker."""
    done = start("gunicorn", "--print-config", "app:create_app()", PREDICT_TIMEOUT_SECONDS="99.5")
    assert re.search(r"^timeout += 130$", done.stdout, re.MULTILINE)
