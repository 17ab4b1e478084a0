"""Liveness and readiness while the service loads, runs and stops."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.kit.processes import Running, wait_for, workers
from tests.kit.scrapes import scrape
from tests.kit.waiting_client import BOTH, ROOT, is_live, serve


def test_probe_command(stack: ExitStack, tmp_path: Path) -> None:
    """`python -m app healthcheck` succeeds if the service is live, and with `ready` only if the model is loaded."""
    client = serve(stack, tmp_path, "loading", WORKERS=1, is_ready=is_live)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": str(client.service.http_port)}

    def probe(*arguments: str) -> bool:
        command = [sys.executable, "-m", "app", "healthcheck", *arguments]
        return not subprocess.run(
            command, cwd=ROOT, env={**os.environ, **settings}, timeout=180
        ).returncode

    assert (probe(), probe("ready")) == (True, False)
    (tmp_path / "loaded").touch()
    wait_for(client.service.ready)
    assert (probe(), probe("ready")) == (True, True)


@pytest.mark.parametrize("workers", [1, 2])
def test_service_is_live_but_not_ready_while_loading(
    stack: ExitStack, tmp_path: Path, workers: int
) -> None:
    """R5: until load() returns, the service is live but not ready, and rejects inference requests."""
    client = serve(stack, tmp_path, "loading", WORKERS=workers, is_ready=is_live)
    wait_for(lambda: (tmp_path / "load.begun").exists())
    for _ in range(5):
        assert client.live()
        assert client.ready() == {False}
        assert {client.infer(protocol) for protocol in BOTH} == {"UNAVAILABLE"}
    wait_for(lambda: "Still loading the model after 1 s" in client.service.log())
    wait_for(
        lambda: client.service.log().count("Loading the model\n") == workers
    )  # the second one starts later
    assert "Loaded the model" not in client.service.log()
    (tmp_path / "loaded").touch()
    (tmp_path / "go").touch()
    wait_for(lambda: client.ready() == {True})
    assert {client.infer(protocol) for protocol in BOTH} == {"ok"}


def test_loading_worker_accepts_no_rest_connections(stack: ExitStack, tmp_path: Path) -> None:
    """Once one worker is ready, a worker that is still loading accepts no REST connections."""
    (tmp_path / "go").touch()
    client = serve(stack, tmp_path, "one_slow_load", WORKERS=2, is_ready=Running.ready)
    assert {client.infer("rest", f"early-{index}") for index in range(200)} == {"ok"}
    assert client.ready_workers() == 1
    (tmp_path / "model").touch()
    wait_for(lambda: client.ready_workers() == 2)
    assert {client.infer("rest", f"late-{index}") for index in range(20)} == {"ok"}


def test_probes_succeed_under_full_load(stack: ExitStack, tmp_path: Path) -> None:
    """Liveness and readiness probes succeed while MAX_CONCURRENCY requests run and MAX_QUEUE_SIZE are queued."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=2, MAX_QUEUE_SIZE=2)
    running = [client.begin(protocol, protocol) for protocol in BOTH]
    waiting = [client.wait(protocol, f"{protocol} waits") for protocol in BOTH]
    wait_for(client.is_full)
    for _ in range(20):
        assert client.live()
        assert client.ready() == {True}
    (tmp_path / "go").touch()
    assert {call.result() for call in [*running, *waiting]} == {"ok"}


@pytest.mark.parametrize("path", ["/metrics", "/v2/models/test/stats"])
@pytest.mark.parametrize("disabled", ["", "worker"])
def test_probes_succeed_during_many_scrapes(
    stack: ExitStack, tmp_path: Path, path: str, disabled: str
) -> None:
    """A probe gets a thread while many clients ask for metrics. Most of them are told to retry."""
    settings = {"MAX_CONCURRENCY": 1, "MAX_QUEUE_SIZE": 0, "DISABLE_OPTIMIZATIONS": disabled}
    client = serve(stack, tmp_path, **settings)
    running = client.begin("grpc", "grpc")
    (worker,) = workers(client.service)

    # All requests arrive at the same time, the probe as the last one.
    os.kill(worker, signal.SIGSTOP)
    connections = []
    for target in [path] * 60 + ["/v2/health/live"]:
        connection = http.client.HTTPConnection(client.service.http_address, timeout=180)
        stack.enter_context(closing(connection))
        connection.request("GET", target)
        connections.append(connection)
    os.kill(worker, signal.SIGCONT)

    *responses, probe = [connection.getresponse() for connection in connections]
    assert probe.status == 200
    statuses = {response.status for response in responses}
    assert statuses == {200, 503}
    for response in responses:
        assert (response.headers["Retry-After"] == "1") == (response.status == 503)
    assert scrape(client.service)("inference_requests_in_flight") == 1
    (tmp_path / "go").touch()
    assert running.result() == "ok"


@pytest.mark.parametrize("to_all", [False, True])
def test_readiness_ends_before_requests_are_rejected(
    stack: ExitStack, tmp_path: Path, to_all: bool
) -> None:
    """After SIGTERM, also to all processes as from systemd, readiness probes fail while requests still succeed."""
    client = serve(stack, tmp_path, WORKERS=2, SHUTDOWN_DELAY_SECONDS=2)
    (tmp_path / "go").touch()
    for pid in workers(client.service) if to_all else ():
        os.kill(pid, signal.SIGTERM)
    client.service.process.send_signal(signal.SIGTERM)
    wait_for(lambda: client.ready() == {False})
    assert client.live()
    assert {client.infer(protocol) for protocol in BOTH} == {"ok"}
    assert client.service.process.wait(60) == 0
