"""The service works without each of its optimizations, and with gunicorn's own worker."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app import create_app
from app.config.settings import OPTIMIZATIONS, Settings
from app.rest.fast_path import FastPath
from oip_conformance.wires import Grpc, Rest
from tests.kit import models
from tests.kit.processes import Running, free_ports, gunicorn, started, wait_for, workers

ROOT = Path(__file__).parents[2]
SECONDS = 60
MODEL = "/v2/models/test"
SMALL = [1.5, -2.0]
# Large enough for the readers of large JSON and of large messages.
LARGE = (np.arange(20_000) / 2).tolist()
VARIANTS: dict[str, dict[str, str]] = {
    "all on": {},
    **{name: {"DISABLE_OPTIMIZATIONS": name} for name in sorted(OPTIMIZATIONS)},
    "all off": {"DISABLE_OPTIMIZATIONS": ",".join(sorted(OPTIMIZATIONS))},
    "-k gthread": {"GUNICORN_CMD_ARGS": "--worker-class gthread"},
}


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    """Return a variant of the service: mostly, one optimization is off."""
    return request.param


@pytest.fixture(scope="module")
def service(variant: str) -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:numbers()", WORKERS=1, **VARIANTS[variant]) as running:
        yield running


class RestClient:
    """An HTTP client with the post() that oip_conformance.wires needs."""

    def __init__(self, service: Running):
        self.service = service

    def post(self, path: str, data: bytes, headers: dict[str, str]) -> Any:
        url = f"http://{self.service.http_address}{path}"
        response: Any = requests.post(url, data, headers=headers, timeout=SECONDS)
        response.data = response.content
        return response


@pytest.fixture
def channel(service: Running) -> Iterator[grpc.Channel]:
    with service.own_channel() as channel:
        yield channel


@pytest.fixture
def clients(service: Running, channel: grpc.Channel) -> dict[str, Rest | Grpc]:
    """Return a client for each form."""
    return {
        "rest json": Rest(RestClient(service)),
        "rest binary": Rest(RestClient(service), binary=True),
        "grpc typed": Grpc(channel, timeout=SECONDS),
        "grpc raw": Grpc(channel, raw=True, timeout=SECONDS),
    }


def check_echo(client: Rest | Grpc, values: list[float]) -> None:
    response = client.infer([("x", "FP32", [len(values)], values)], request_id="a")
    assert response.outputs == {"y": ("FP32", [len(values)], values)}
    assert response.id == "a"


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_every_form(clients: dict[str, Rest | Grpc], form: str, values: list[float]) -> None:
    """R8, B7, G4: tensors are echoed in every form, by the first request and by those after it."""
    for _ in range(2):
        check_echo(clients[form], values)


def test_errors(clients: dict[str, Rest | Grpc], form: str) -> None:
    """R19, G1: errors have their status and text, and a valid request after them succeeds."""
    invalid = clients[form].infer([("x", "FP32", [3], SMALL)])
    assert invalid.kind == "INVALID_ARGUMENT"
    assert invalid.text.startswith('Input "x": wrong number of ')
    unknown = clients[form].infer([("x", "FP32", [2], SMALL)], model="other")
    assert unknown.text == 'Model not found. Expected "test", got "other".'
    check_echo(clients[form], SMALL)


@pytest.mark.parametrize("path", ["/v2/health/live/", MODEL, f"{MODEL}/config", f"{MODEL}/stats"])
def test_metadata(service: Running, path: str) -> None:
    """R2, R6, T1, T3: the routes about the server and the model respond."""
    assert service.get(path)


def test_concurrent_grpc_calls(channel: grpc.Channel) -> None:
    """G1, G7: many concurrent calls of the service and of its health succeed."""
    client, health = Grpc(channel, timeout=SECONDS), health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest()
    watch = health.Watch(request, timeout=SECONDS)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    calls = [health.Check.future(request, timeout=SECONDS) for _ in range(50)]
    assert client.call("ModelReady", name="test").ready
    assert {call.result().status for call in calls} == {health_pb2.HealthCheckResponse.SERVING}
    watch.cancel()


def test_metrics(service: Running, clients: dict[str, Rest | Grpc]) -> None:
    """GET /metrics counts the requests of both protocols."""
    for form, code in (("rest json", "200"), ("grpc raw", "OK")):
        check_echo(clients[form], SMALL)
        protocol = form.partition(" ")[0]
        labels = f'code="{code}",model="test",operation="infer",protocol="{protocol}"'
        line = f"inference_requests_total{{{labels}".encode()
        wait_for(lambda line=line: line in (service.get("/metrics") or b""))


def test_worker_class(service: Running, variant: str) -> None:
    """Without the optimization `worker`, gunicorn's own worker serves."""
    uses_gthread = variant in ("worker", "all off", "-k gthread")
    assert (
        f"Using worker: {'gthread' if uses_gthread else 'app.runtime.gunicorn_hooks.ServiceWorker'}"
        in service.log()
    )


def test_reload(service: Running) -> None:
    """After SIGHUP, a new worker serves both protocols."""
    before = workers(service)
    os.kill(service.process.pid, signal.SIGHUP)
    wait_for(lambda: not workers(service) & before and service.ready())
    check_echo(Rest(RestClient(service)), SMALL)
    with service.own_channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        check = health_pb2.HealthCheckRequest()
        status = health.Check(check, timeout=SECONDS, wait_for_ready=True).status
        assert status == health_pb2.HealthCheckResponse.SERVING
        check_echo(Grpc(channel, timeout=SECONDS), SMALL)


@pytest.mark.parametrize("disabled", [(), tuple(OPTIMIZATIONS)])
def test_fast_path(disabled: tuple[str, ...]) -> None:
    """Without fast_path, the middleware calls Flask's own application."""
    app = create_app(Settings(disable_optimizations=disabled), models.echo("FP32", [-1]))
    middleware: Any = app.wsgi_app
    assert isinstance(middleware.wsgi, FastPath) == ("fast_path" not in disabled)


def test_failed_reload(tmp_path: Path) -> None:
    """Without rolling_reload, gunicorn itself replaces the workers, and stops if the new ones cannot load the model."""
    http_port, grpc_port = free_ports(2)
    ports = {"HOST": "127.0.0.1", "HTTP_PORT": http_port, "GRPC_PORT": grpc_port}
    settings = {
        **ports,
        "FOLDER": tmp_path,
        "WORKERS": 1,
        "DISABLE_OPTIMIZATIONS": "rolling_reload",
    }
    command = [sys.executable, "-m", "gunicorn", "tests.service.apps:conditional_load_error()"]
    with started(command, ROOT, settings) as running:
        (tmp_path / "broken").write_text("broken")
        os.kill(running.process.pid, signal.SIGHUP)
        assert running.process.wait(SECONDS) == 3
        assert "Cannot start: load() failed: RuntimeError: broken" in running.log()
