"""A smoke test of the whole service: gunicorn runs as in production, and both protocols are called.

The tests of the model are in test_predict.py. Leave a transport out of TRANSPORTS if it cannot
carry your tensors. JSON needs content_type="bytes" for bytes that are not text. Binary tensors and
gRPC need missing="" for missing text.
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
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from app import predict
from app.config.settings import Settings
from app.inference.example import make_example, make_input
from app.protocol.errors import InferenceError
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.tensors import ResponseOutput
from grpc_service import client
from grpc_service.messages import SERVICE_NAME, ModelMetadataRequest, ModelMetadataResponse

TRANSPORTS = ["rest-json", "rest-binary", "grpc"]
ROOT = Path(__file__).parents[1]
METADATA = predict.METADATA
EXAMPLE = getattr(predict, "EXAMPLE", None)
TIMEOUT_SECONDS = 120  # for one step, because a busy machine can be slow


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    headers: Any


@dataclass
class Service:
    """The running service, and connections to it."""

    process: subprocess.Popen[bytes]
    http_port: int
    channel: grpc.Channel

    def send_http(
        self, method: str, path: str, body: bytes = b"", headers: Any = None
    ) -> HttpResponse:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.http_port, timeout=TIMEOUT_SECONDS
        )
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return HttpResponse(response.status, response.read(), response.headers)
        finally:
            connection.close()

    def is_ready(self) -> bool:
        try:
            return self.send_http("GET", "/v2/health/ready").status == 200
        except (OSError, http.client.HTTPException):
            return False


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start the service on free ports. At the end, check that it shuts down without an error."""
    log = tmp_path_factory.mktemp("service") / "log.txt"
    http_port = find_free_port()
    grpc_port = find_free_port()
    env = environment(
        HOST="127.0.0.1",
        HTTP_PORT=http_port,
        GRPC_PORT=grpc_port,
        WORKERS=1,
        SHUTDOWN_DELAY_SECONDS=0,
    )
    command = [sys.executable, "-m", "gunicorn", "app:create_app()"]
    with log.open("wb") as file, grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
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
    """Return the environment with these settings, and without all others of the service.

    MODEL_DIR remains.
    """
    removed = {name.upper() for name in Settings.__dataclass_fields__}
    removed.remove("MODEL_DIR")
    removed.add("GUNICORN_CMD_ARGS")
    variables = {}
    for name, value in os.environ.items():
        if name not in removed:
            variables[name] = value
    for name, setting in settings.items():
        variables[name] = str(setting)
    return variables


def find_free_port() -> int:
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


def make_request() -> InferenceRequest:
    """Return a request with the values of EXAMPLE, or with made-up ones."""
    values = EXAMPLE
    if values is None:
        values = {}
        for tensor in make_example(METADATA)["inputs"]:
            array = np.array(tensor["data"], object)
            values[tensor["name"]] = array.reshape(tensor["shape"]).tolist()

    inputs = []
    for declared in METADATA.inputs:
        if declared.name in values:
            inputs.append(make_input(declared, values[declared.name]))
    return InferenceRequest(inputs)


def infer(service: Service, transport: str) -> list[ResponseOutput]:
    """Return the outputs. Raise InferenceError with the service's message if the request fails."""
    request = make_request()
    if transport == "grpc":
        try:
            response = client.infer(
                service.channel, METADATA.name, request, timeout=TIMEOUT_SECONDS
            )
        except grpc.RpcError as error:
            raise InferenceError(error.details()) from error
        return response.outputs

    body, headers = request.to_http(binary=transport == "rest-binary")
    path = f"/v2/models/{METADATA.name}/infer"
    http_response = service.send_http("POST", path, body, headers)
    if http_response.status != 200:
        raise InferenceError(json.loads(http_response.body)["error"])
    return InferenceResponse.from_http(http_response.body, http_response.headers).outputs


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_infer(service: Service, transport: str) -> None:
    """EXAMPLE returns all declared outputs.

    Without EXAMPLE, the model may reject made-up values with an error.
    """
    try:
        outputs = infer(service, transport)
    except InferenceError as error:
        if EXAMPLE is not None or not str(error):
            raise
        return

    datatypes = {output.name: output.datatype for output in outputs}
    assert datatypes == {declared.name: declared.datatype for declared in METADATA.outputs}


def test_health(service: Service) -> None:
    """Over both protocols, the service and the model are live and ready."""
    for path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{METADATA.name}/ready"):
        assert service.send_http("GET", path).status == 200

    reply = HealthStub(service.channel).Check(HealthCheckRequest(), timeout=TIMEOUT_SECONDS)
    assert reply.status == HealthCheckResponse.SERVING


def test_metadata(service: Service) -> None:
    """Over both protocols, clients can read the model's inputs and outputs."""
    declared = [tensor.name for tensor in [*METADATA.inputs, *METADATA.outputs]]

    response = service.send_http("GET", f"/v2/models/{METADATA.name}")
    over_rest = json.loads(response.body)
    assert [tensor["name"] for tensor in over_rest["inputs"] + over_rest["outputs"]] == declared

    call = service.channel.unary_unary(
        f"/{SERVICE_NAME}/ModelMetadata",
        ModelMetadataRequest.SerializeToString,
        ModelMetadataResponse.FromString,
    )
    over_grpc = call(ModelMetadataRequest(name=METADATA.name), timeout=TIMEOUT_SECONDS)
    assert [tensor.name for tensor in [*over_grpc.inputs, *over_grpc.outputs]] == declared


@pytest.mark.parametrize(
    ("model", "body", "status"),
    [
        ("no-such-model", b'{"inputs": []}', 404),
        (METADATA.name, b"not JSON", 400),
    ],
)
def test_rest_errors(service: Service, model: str, body: bytes, status: int) -> None:
    """An unknown model is 404, and a body that is not JSON is 400. Each error has a message."""
    response = service.send_http("POST", f"/v2/models/{model}/infer", body)

    assert response.status == status
    assert json.loads(response.body)["error"]


def test_grpc_error(service: Service) -> None:
    """An unknown model is NOT_FOUND. The error has a message."""
    with pytest.raises(grpc.RpcError) as raised:
        client.infer(service.channel, "no-such-model", make_request(), timeout=TIMEOUT_SECONDS)

    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    assert raised.value.details()
