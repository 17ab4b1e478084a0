"""A client of the `waiting` service, and a load of requests that runs during a change."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app.protocol.messages import InferenceRequest
from grpc_service.converters import write_request
from oip_conformance.wires import KINDS, Grpc
from tests.kit.processes import Running, gunicorn, wait_for

ROOT = Path(__file__).parents[2]
BOTH = ["rest", "grpc"]
MICROSECONDS = 10**6


class Client:
    """A client of the `waiting` service in `tests.service.apps`, whose predict() waits for the file FOLDER/go."""

    def __init__(self, service: Running, folder: Path, stack: ExitStack):
        self.service, self.folder = service, folder
        self.pool = stack.enter_context(ThreadPoolExecutor(32))
        self.channel = stack.enter_context(grpc.insecure_channel(service.grpc_address))
        stack.callback((folder / "go").touch)

    def get(self, path: str) -> int:
        return rest(self.service, "GET", path)[0]

    def infer(self, protocol: str, name: str = "", timeout: int = 0) -> str:
        """Return "ok" or the gRPC name of the error. `timeout` is in microseconds."""
        values = {"folder": str(self.folder), "name": name}
        if protocol == "grpc":
            inputs = [(key, "BYTES", [1], [value]) for key, value in values.items()]
            # Without a deadline of gRPC, only the parameter limits the time.
            return (
                Grpc(self.channel, timeout=None).infer(inputs, parameters={"timeout": timeout}).kind
            )
        tensors = [
            {"name": key, "datatype": "BYTES", "shape": [1], "data": [each]}
            for key, each in values.items()
        ]
        envelope = {"inputs": tensors, "parameters": {"timeout": timeout}}
        status, headers = rest(self.service, "POST", "/v2/models/test/infer", envelope)
        assert ("Retry-After" in headers) == (status == 503)
        return KINDS.get(status, str(status)) if status != 200 else "ok"

    def begin(self, protocol: str, name: str, **options: Any) -> Future[str]:
        """Call infer() in a thread, and return when predict() has started."""
        future = self.pool.submit(self.infer, protocol, name, **options)
        wait_for(lambda: self.has_begun(name))
        return future

    def is_full(self) -> bool:
        """Return true if the queue is full. If it is not, this request exceeds its short deadline."""
        return self.infer("rest", "rejected", MICROSECONDS // 100) == "UNAVAILABLE"

    def wait(self, protocol: str, name: str) -> Future[str]:
        """Call infer() in a thread, and repeat it while the service rejects the request."""

        def send_until_accepted() -> str:
            while (kind := self.infer(protocol, name)) in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                pass
            return kind

        return self.pool.submit(send_until_accepted)

    def ready_workers(self) -> int:
        """Return the number of workers that have been ready since the start."""
        return self.service.ready_count()

    def has_begun(self, name: str) -> bool:
        return (self.folder / f"{name}.begun").exists()

    def ready(self) -> set[bool]:
        """Return the distinct results of all readiness probes."""
        status = (
            health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest()).status
        )
        return {
            self.get("/v2/health/ready") == 200,
            self.get("/v2/models/test/ready") == 200,
            Grpc(self.channel).call("ServerReady").ready,
            Grpc(self.channel).call("ModelReady", name="test").ready,
            status == health_pb2.HealthCheckResponse.SERVING,
        }

    def live(self) -> bool:
        return self.get("/v2/health/live") == 200 and Grpc(self.channel).call("ServerLive").live


def rest(service: Running, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str]]:
    with closing(http.client.HTTPConnection(service.http_address, timeout=60)) as connection:
        connection.request(method, path, json.dumps(body) if body else None)
        response = connection.getresponse()
        response.read()
        return response.status, dict(response.getheaders())


def serve(stack: ExitStack, folder: Path, app: str = "waiting", **settings: Any) -> Client:
    """Start an application of `tests.service.apps`."""
    service = stack.enter_context(
        gunicorn(ROOT, f"tests.service.apps:{app}()", FOLDER=folder, **settings)
    )
    return Client(service, folder, stack)


def is_live(running: Running) -> bool:
    try:
        return rest(running, "GET", "/v2/health/live")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def begin_to_wait(client: Client, protocol: str, request: InferenceRequest) -> Callable[[], Any]:
    """Send the request, and return a function that cancels it or closes its connection."""
    if protocol == "grpc":
        method = "/inference.GRPCInferenceService/ModelInfer"
        return client.channel.unary_unary(method).future(write_request(request)).cancel
    connection = http.client.HTTPConnection(client.service.http_address, timeout=60)
    connection.request("POST", "/v2/models/test/infer", *request.to_http())
    return connection.close


class Load:
    """Threads that send requests over both protocols without a pause, and count the results."""

    def __init__(self, client: Client, stack: ExitStack):
        self.client, self.stopping = client, threading.Event()
        self.kinds: Counter[str] = Counter()
        self.probes: Counter[int] = Counter()
        self.threads = [
            threading.Thread(target=target) for target in [self.probe, *[self.rest, self.grpc] * 4]
        ]
        for thread in self.threads:
            thread.start()
        stack.callback(self.stop)

    def rest(self) -> None:
        connection = http.client.HTTPConnection(self.client.service.http_address, timeout=60)
        body = json.dumps(
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
        )
        while not self.stopping.is_set():
            try:
                connection.connect() if connection.sock is None else None
            except ConnectionRefusedError:
                self.kinds["refused"] += 1
                continue
            except OSError as error:
                self.kinds[f"REST, connecting: {error!r}"] += 1
                continue
            try:
                connection.request("POST", "/v2/models/test/infer", body)
                response = connection.getresponse()
                response.read()
                self.kinds["ok" if response.status == 200 else f"REST {response.status}"] += 1
            except (OSError, http.client.HTTPException) as error:
                self.kinds[f"REST {error!r}"] += 1
                connection.close()
        connection.close()

    def probe(self) -> None:
        while not self.stopping.wait(0.02):
            try:
                self.probes[self.client.get("/v2/health/ready")] += 1
            except OSError:
                self.probes[0] += 1

    def grpc(self) -> None:
        with self.client.service.own_channel() as channel:
            while not self.stopping.is_set():
                kind = Grpc(channel).infer([("x", "FP32", [1], [1.0])]).kind
                self.kinds[
                    "refused" if kind == "UNAVAILABLE" else f"gRPC {kind}" if kind != "ok" else "ok"
                ] += 1

    def stop(self) -> Counter[str]:
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        return self.kinds
