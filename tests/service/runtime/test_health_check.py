"""is_healthy() of predict.py, on which readiness depends."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from oip_conformance.wires import Grpc
from tests.kit import models
from tests.kit.processes import local_settings, started, wait_for
from tests.kit.projects import edit, make_project
from tests.kit.waiting_client import BOTH, serve

IS_HEALTHY = """def is_healthy(model):
    return not read_settings().model_dir.joinpath("problem").exists()


def predict("""


def test_unhealthy_model_is_not_ready(stack: ExitStack, tmp_path: Path) -> None:
    """Readiness follows is_healthy() over both protocols and in the metrics. The service still serves requests."""
    (tmp_path / "go").touch()
    client = serve(stack, tmp_path, "checked", WORKERS=1, HEALTH_CHECK_INTERVAL_SECONDS=0.05)
    wait_for(lambda: checks(tmp_path) > 2)
    assert client.ready() == {True}
    for text, reason in {
        "": "is_healthy() returned False",
        "no disk": "RuntimeError: no disk",
    }.items():
        (tmp_path / "text").write_text(text)
        (tmp_path / "text").rename(tmp_path / "problem")
        wait_for(lambda: client.ready() == {False})
        wait_for(lambda: client.service.workers_ready() == 0)
        assert b'data-state="Not ready"' in (client.service.get("/") or b"")
        assert client.live()
        assert {client.infer(protocol) for protocol in BOTH} == {"ok"}
        before = checks(tmp_path)
        wait_for(lambda count=before: checks(tmp_path) > count + 2)
        assert client.service.log().count(f"The model is unhealthy: {reason}\n") == 1
        (tmp_path / "problem").unlink()
        wait_for(lambda: client.ready() == {True})
        wait_for(lambda: client.service.workers_ready() == 1)
    assert client.service.log().count("The model is unhealthy: ") == 2
    assert client.service.log().count("The model is healthy again\n") == 2


def checks(folder: Path) -> int:
    """Return the number of calls of is_healthy()."""
    return len((folder / "checks").read_text()) if (folder / "checks").exists() else 0


def test_health_check_of_standalone_grpc(tmp_path: Path) -> None:
    """`python -m grpc_service` also calls is_healthy()."""
    edit(make_project(tmp_path), "def predict(", IS_HEALTHY)
    settings = local_settings(HEALTH_CHECK_INTERVAL_SECONDS=0.05)
    command = [sys.executable, "-m", "grpc_service"]
    with (
        started(
            command, tmp_path, settings, lambda running: "adder is ready on" in running.log()
        ) as service,
        grpc.insecure_channel(service.grpc_address) as channel,
    ):
        client = Grpc(channel)
        assert client.call("ServerReady").ready
        (tmp_path / "model/problem").touch()
        wait_for(lambda: not client.call("ServerReady").ready)
        (tmp_path / "model/problem").unlink()
        wait_for(lambda: client.call("ServerReady").ready)


@pytest.mark.parametrize("place", ["result", "report"])
def test_health_check_survives_failures(serve, place: str) -> None:
    """A result without a truth value is a problem of the model. It does not end the health check."""
    results: list[Any] = [np.array([True, True]), True]
    reports: list[bool] = []

    def is_healthy(model: Any) -> Any:
        return results.pop(0) if len(results) > 1 else results[0]

    def report(is_ready: bool) -> None:
        reports.append(is_ready)
        if place == "report":
            raise RuntimeError("cannot report")

    module = models.echo("FP32", [-1])
    module.is_healthy = is_healthy
    service = serve(module, health_check_interval_seconds=0.01)
    service.core.start_health_check(report)
    wait_for(lambda: reports == [False, True])
    assert service.core.is_ready
    service.core.close()


@pytest.mark.parametrize(
    ("has_function", "seconds", "threads"), [(False, 10, 0), (True, 0, 0), (True, 10, 1)]
)
def test_health_check_needs_function_and_interval(
    serve, has_function: bool, seconds: int, threads: int
) -> None:
    """Without is_healthy(), or with HEALTH_CHECK_INTERVAL_SECONDS=0, no thread starts."""
    module = models.echo("FP32", [-1])
    if has_function:
        module.is_healthy = lambda model: True
    service = serve(module, health_check_interval_seconds=seconds)
    before = threading.active_count()
    service.core.start_health_check(lambda is_ready: None)
    assert threading.active_count() == before + threads
    service.core.close()
    assert threading.active_count() == before
