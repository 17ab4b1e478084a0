"""The service works without each of its optimizations, and with gunicorn's own worker."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app import create_app
from app.config.settings import OPTIMIZATIONS, Settings
from app.rest.fast_path import FastPath
from oip_conformance.wires import Grpc
from tests.kit import models
from tests.kit.processes import Running, free_ports, gunicorn, started, wait_for, workers

ROOT = Path(__file__).parents[2]
SECONDS = 60
LENGTH = "Inference-Header-Content-Length"
MODEL = "/v2/models/test"
NAMES = ("ready", "config", "stats")
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


@pytest.fixture
def channel(service: Running) -> Iterator[grpc.Channel]:
    with service.own_channel() as channel:
        yield channel


def send_request(
    service: Running,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", service.http_port, timeout=SECONDS)
    try:
        connection.request(method, path, body or None, headers or {})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def envelope(values: list[float], **members: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}
    return json.dumps({"inputs": [tensor], **members}).encode()


def infer(service: Running, values: list[float]) -> list[float]:
    """Return the data of a response in JSON."""
    status, _, body = send_request(service, "POST", f"{MODEL}/infer", envelope(values))
    assert status == 200, body
    return json.loads(body)["outputs"][0]["data"]


def test_health_and_metadata(service: Running) -> None:
    """R2, R4, R5, R6, T1, T3: the routes about the server and the model respond, with a trailing slash too."""
    for path in (
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/health/live/",
        *(f"{MODEL}/{name}" for name in NAMES),
    ):
        assert send_request(service, "GET", path)[0] == 200
    assert "binary_tensor_data" in json.loads(send_request(service, "GET", "/v2")[2])["extensions"]
    assert json.loads(send_request(service, "GET", MODEL)[2])["inputs"] == [
        {"name": "x", "shape": [-1], "datatype": "FP32"}
    ]
    assert (
        json.loads(send_request(service, "POST", "/v2/repository/index")[2])[0]["state"] == "READY"
    )


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_rest_json(service: Running, values: list[float]) -> None:
    """R7, R8: tensors in JSON are echoed, by the first request and by those after it."""
    assert infer(service, values) == infer(service, values) == values


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_rest_binary(service: Running, values: list[float]) -> None:
    """B3, B7: tensors in binary data are echoed."""
    blob = np.array(values, "<f4").tobytes()
    tensor = {
        "name": "x",
        "datatype": "FP32",
        "shape": [len(values)],
        "parameters": {"binary_data_size": len(blob)},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    status, headers, body = send_request(
        service, "POST", f"{MODEL}/infer", head + blob, {LENGTH: str(len(head))}
    )
    assert status == 200, body
    assert body[int(headers[LENGTH]) :] == blob


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_grpc(channel: grpc.Channel, values: list[float], raw: bool) -> None:
    """G2, G3, G4: raw and typed tensors are echoed in their own form."""
    response = Grpc(channel, raw, timeout=SECONDS).infer(
        [("x", "FP32", [len(values)], values)], request_id="a"
    )
    assert response.outputs == {"y": ("FP32", [len(values)], values)}
    assert response.id == "a"
    assert bool(response.raw.raw_output_contents) == raw


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


def test_errors(service: Running, channel: grpc.Channel) -> None:
    """R19, G1: errors have their status, and the same text over both protocols."""
    status, _, body = send_request(
        service, "POST", f"{MODEL}/infer", envelope(SMALL).replace(b"[2]", b"[3]")
    )
    response = Grpc(channel, timeout=SECONDS).infer([("x", "FP32", [3], SMALL)])
    assert (status, response.kind) == (400, "INVALID_ARGUMENT")
    assert json.loads(body) == {"error": response.text}
    status, _, body = send_request(service, "POST", "/v2/models/other/infer", envelope(SMALL))
    response = Grpc(channel, model="other", timeout=SECONDS).infer([("x", "FP32", [2], SMALL)])
    assert (status, response.kind) == (404, "NOT_FOUND")
    assert json.loads(body) == {"error": response.text}
    assert send_request(service, "GET", f"{MODEL}/infer")[0] == 405
    assert send_request(service, "POST", f"{MODEL}/infer", b"{")[0] == 400
    assert infer(service, SMALL) == SMALL


def test_metrics(service: Running, channel: grpc.Channel) -> None:
    """GET /metrics counts the requests of both protocols."""
    assert infer(service, SMALL) == SMALL
    assert Grpc(channel, timeout=SECONDS).infer([("x", "FP32", [2], SMALL)]).kind == "ok"
    for code, protocol in (("200", "rest"), ("OK", "grpc")):
        labels = f'code="{code}",model="test",operation="infer",protocol="{protocol}"'
        line = f"inference_requests_total{{{labels}".encode()
        wait_for(lambda line=line: line in send_request(service, "GET", "/metrics")[2])


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
    assert infer(service, SMALL) == SMALL
    with service.own_channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        assert (
            health.Check(request, timeout=SECONDS, wait_for_ready=True).status
            == health_pb2.HealthCheckResponse.SERVING
        )
        assert (
            Grpc(channel, timeout=SECONDS).infer([("x", "FP32", [2], SMALL)]).outputs["y"][2]
            == SMALL
        )


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
