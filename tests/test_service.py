"""A smoke test of the whole service: gunicorn runs as in production, and both protocols are called.

The tests of the model are in test_predict.py. Leave a transport out of TRANSPORTS if it cannot carry your tensors.
JSON needs content_type="bytes" for bytes that are not text. Binary tensors and gRPC need missing="" for missing text.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from app import predict
from app.config.settings import Settings
from app.inference.example import make_example, make_input
from app.protocol.messages import InferenceRequest, InferenceResponse
from grpc_service import client
from grpc_service.messages import SERVICE_NAME, ModelMetadataRequest, ModelMetadataResponse

TRANSPORTS = ["rest-json", "rest-binary", "grpc"]
ROOT = Path(__file__).parents[1]
METADATA = predict.METADATA
EXAMPLE = getattr(predict, "EXAMPLE", None)
TIMEOUT_SECONDS = 120  # for one step, because a busy machine can be slow


@dataclass
class Service:
    process: subprocess.Popen[bytes]
    http_port: int
    channel: grpc.Channel

    def http(
        self, method: str, path: str, body: bytes = b"", headers: Any = None
    ) -> tuple[int, bytes, Any]:
        """Return the status, the body and the headers of a response."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.http_port, timeout=TIMEOUT_SECONDS
        )
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def is_ready(self) -> bool:
        try:
            return self.http("GET", "/v2/health/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start the service on free ports. Wait until it is ready. Check that it shuts down without an error."""
    log = tmp_path_factory.mktemp("service") / "log.txt"
    http_port, grpc_port = free_port(), free_port()
    ports = {"HOST": "127.0.0.1", "HTTP_PORT": http_port, "GRPC_PORT": grpc_port}
    with log.open("wb") as file, grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        command = [sys.executable, "-m", "gunicorn", "app:create_app()"]
        env = environment(**ports, WORKERS=1, SHUTDOWN_DELAY_SECONDS=0)
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            running = Service(process, http_port, channel)
            wait_until_ready(running, log)
            yield running
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text(errors="replace")
        finally:
            process.kill()
            process.wait()


def environment(**settings: object) -> dict[str, str]:
    """Return the environment without the service's settings, except MODEL_DIR, and with these ones."""
    others = {name.upper() for name in Settings.__dataclass_fields__} - {"MODEL_DIR"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in others and name != "GUNICORN_CMD_ARGS"
    }
    return {**kept, **{name: str(value) for name, value in settings.items()}}


def free_port() -> int:
    """Return a port below the range that the system gives to clients."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def wait_until_ready(service: Service, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not service.is_ready():
        assert service.process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.1)


def request() -> InferenceRequest:
    """Return a request with the values of EXAMPLE, or with made-up ones."""
    values = EXAMPLE
    if values is None:
        made_up = make_example(METADATA)["inputs"]
        values = {
            each["name"]: np.reshape(np.array(each["data"], object), each["shape"]).tolist()
            for each in made_up
        }
    return InferenceRequest(
        [make_input(each, values[each.name]) for each in METADATA.inputs if each.name in values]
    )


def infer(service: Service, transport: str) -> tuple[bool, Any]:
    """Return (True, outputs) or (False, error)."""
    if transport == "grpc":
        try:
            return True, client.infer(
                service.channel, METADATA.name, request(), timeout=TIMEOUT_SECONDS
            ).outputs
        except grpc.RpcError as error:
            return False, error.details()
    body, headers = request().to_http(transport == "rest-binary")
    status, response, answer_headers = service.http(
        "POST", f"/v2/models/{METADATA.name}/infer", body, headers
    )
    if status != 200:
        return False, json.loads(response)["error"]
    return True, InferenceResponse.from_http(response, answer_headers).outputs


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_infer(service: Service, transport: str) -> None:
    """EXAMPLE returns all declared outputs. Without EXAMPLE, the model may reject made-up values with an error."""
    is_valid, result = infer(service, transport)
    if EXAMPLE is not None:
        assert is_valid, f"the service rejects EXAMPLE: {result}"
    if is_valid:
        assert {each.name: each.datatype for each in result} == {
            each.name: each.datatype for each in METADATA.outputs
        }
    else:
        assert result


def test_health(service: Service) -> None:
    """Over both protocols, the service and the model are live and ready."""
    for path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{METADATA.name}/ready"):
        assert service.http("GET", path)[0] == 200
    reply = HealthStub(service.channel).Check(HealthCheckRequest(), timeout=TIMEOUT_SECONDS)
    assert reply.status == HealthCheckResponse.SERVING


def test_metadata(service: Service) -> None:
    """Over both protocols, clients can read the model's inputs and outputs."""
    tensors = [each.name for each in [*METADATA.inputs, *METADATA.outputs]]
    over_rest = json.loads(service.http("GET", f"/v2/models/{METADATA.name}")[1])
    assert [each["name"] for each in [*over_rest["inputs"], *over_rest["outputs"]]] == tensors
    call = service.channel.unary_unary(
        f"/{SERVICE_NAME}/ModelMetadata",
        ModelMetadataRequest.SerializeToString,
        ModelMetadataResponse.FromString,
    )
    over_grpc = call(ModelMetadataRequest(name=METADATA.name), timeout=TIMEOUT_SECONDS)
    assert [each.name for each in [*over_grpc.inputs, *over_grpc.outputs]] == tensors


def test_errors(service: Service) -> None:
    """An unknown model is 404 or NOT_FOUND, and a body that is not JSON is 400. Each error has a message."""
    for name, body, expected in [
        ("no-such-model", b'{"inputs": []}', 404),
        (METADATA.name, b"not JSON", 400),
    ]:
        status, response, _ = service.http("POST", f"/v2/models/{name}/infer", body)
        assert status == expected
        assert json.loads(response)["error"]
    with pytest.raises(grpc.RpcError) as raised:
        client.infer(service.channel, "no-such-model", request(), timeout=TIMEOUT_SECONDS)
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    assert raised.value.details()
