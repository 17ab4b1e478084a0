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
from oip_conformance.wires import GRPC_NAMES, Grpc
from tests.kit.processes import Running, gunicorn, wait_for

ROOT = Path(__file__).parents[2]
BOTH = ["rest", "grpc"]
INFER = "/v2/models/test/infer"
# The number of microseconds in a second, for the parameter `timeout`.
MICROSECONDS = 10**6


class Client:
    """A client of the `waiting` service in `tests.service.apps`.

    predict() of this service creates the file FOLDER/NAME.begun, and waits for the file FOLDER/go.
    """

    def __init__(self, service: Running, folder: Path, stack: ExitStack):
        self.service = service
        self.folder = folder
        self.pool = stack.enter_context(ThreadPoolExecutor(32))
        self.channel = stack.enter_context(grpc.insecure_channel(service.grpc_address))
        # The threads of the pool end only when predict() returns.
        stack.callback((folder / "go").touch)

    def get(self, path: str) -> int:
        """Return the status of a GET request."""
        status, _ = rest(self.service, "GET", path)
        return status

    def infer(self, protocol: str, name: str = "", timeout: int = 0) -> str:
        """Return "ok" or the gRPC name of the error. `timeout` is in microseconds."""
        values = {"folder": str(self.folder), "name": name}
        parameters = {"timeout": timeout}
        if protocol == "grpc":
            inputs = [(key, "BYTES", [1], [value]) for key, value in values.items()]
            # Without a deadline of gRPC, only the parameter limits the time.
            client = Grpc(self.channel, timeout=None)
            return client.infer(inputs, parameters=parameters).kind

        tensors = []
        for key, value in values.items():
            tensors.append({"name": key, "datatype": "BYTES", "shape": [1], "data": [value]})
        envelope = {"inputs": tensors, "parameters": parameters}
        status, headers = rest(self.service, "POST", INFER, envelope)
        assert ("Retry-After" in headers) == (status == 503)
        if status == 200:
            return "ok"
        return GRPC_NAMES.get(status, str(status))

    def begin(self, protocol: str, name: str, **options: Any) -> Future[str]:
        """Call infer() in a thread, and return when predict() has started."""

        def has_begun() -> bool:
            return self.has_begun(name)

        future = self.pool.submit(self.infer, protocol, name, **options)
        wait_for(has_begun)
        return future

    def is_full(self) -> bool:
        """Return true if the queue is full.

        If it is not, the request of this method waits in the queue until its short deadline.
        """
        kind = self.infer("rest", "rejected", timeout=MICROSECONDS // 100)
        return kind == "UNAVAILABLE"

    def wait(self, protocol: str, name: str) -> Future[str]:
        """Call infer() in a thread, and repeat it while the service rejects the request."""

        def send_until_accepted() -> str:
            while True:
                kind = self.infer(protocol, name)
                if kind not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                    return kind

        return self.pool.submit(send_until_accepted)

    def ready_workers(self) -> int:
        """Return the number of workers that have been ready since the start."""
        return self.service.ready_count()

    def has_begun(self, name: str) -> bool:
        """Return whether predict() has started for the request with this name."""
        return (self.folder / f"{name}.begun").exists()

    def ready(self) -> set[bool]:
        """Return the distinct results of all readiness probes."""
        client = Grpc(self.channel)
        health_service = health_pb2_grpc.HealthStub(self.channel)
        health = health_service.Check(health_pb2.HealthCheckRequest())
        return {
            self.get("/v2/health/ready") == 200,
            self.get("/v2/models/test/ready") == 200,
            client.call("ServerReady").ready,
            client.call("ModelReady", name="test").ready,
            health.status == health_pb2.HealthCheckResponse.SERVING,
        }

    def live(self) -> bool:
        """Return whether the service is live over both protocols."""
        if self.get("/v2/health/live") != 200:
            return False
        return Grpc(self.channel).call("ServerLive").live


def rest(service: Running, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str]]:
    """Send a request on a new connection, and return the status and the headers of the response."""
    content = None
    if body:
        content = json.dumps(body)
    with closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection:
        connection.request(method, path, content)
        response = connection.getresponse()
        response.read()
        return response.status, dict(response.getheaders())


def serve(stack: ExitStack, folder: Path, app: str = "waiting", **settings: Any) -> Client:
    """Start an application of `tests.service.apps`, and return a client of it."""
    running = gunicorn(ROOT, f"tests.service.apps:{app}()", FOLDER=folder, **settings)
    service = stack.enter_context(running)
    return Client(service, folder, stack)


def is_live(running: Running) -> bool:
    """Return whether a worker responds that it is live. It may not have loaded its model yet."""
    try:
        status, _ = rest(running, "GET", "/v2/health/live")
    except (OSError, http.client.HTTPException):
        return False
    return status == 200


def begin_to_wait(client: Client, protocol: str, request: InferenceRequest) -> Callable[[], Any]:
    """Send the request, and return a function that cancels it or closes its connection."""
    if protocol == "grpc":
        infer = client.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        call = infer.future(write_request(request))
        return call.cancel

    body, headers = request.to_http()
    connection = http.client.HTTPConnection(client.service.http_address, timeout=180)
    connection.request("POST", INFER, body, headers)
    return connection.close


class Load:
    """Threads that send requests over both protocols without a pause, and count the results.

    kinds: the number of inference requests by result: "ok", "refused", or a text about an error
    probes: the number of readiness probes by HTTP status, which is 0 without a response
    """

    def __init__(self, client: Client, stack: ExitStack):
        self.client = client
        self.stopping = threading.Event()
        self.kinds: Counter[str] = Counter()
        self.probes: Counter[int] = Counter()

        self.threads = [threading.Thread(target=self.probe)]
        for _ in range(4):
            self.threads.append(threading.Thread(target=self.rest))
            self.threads.append(threading.Thread(target=self.grpc))
        for thread in self.threads:
            thread.start()
        stack.callback(self.stop)

    def rest(self) -> None:
        """Send requests on one connection. Open another one after an error."""
        connection = http.client.HTTPConnection(self.client.service.http_address, timeout=180)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
        body = json.dumps({"inputs": [tensor]})
        while not self.stopping.is_set():
            if connection.sock is None:
                try:
                    connection.connect()
                except ConnectionRefusedError:
                    self.kinds["refused"] += 1
                    continue
                except OSError as error:
                    self.kinds[f"REST, connecting: {error!r}"] += 1
                    continue

            try:
                connection.request("POST", INFER, body)
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException) as error:
                self.kinds[f"REST {error!r}"] += 1
                connection.close()
                continue

            if response.status == 200:
                self.kinds["ok"] += 1
            else:
                self.kinds[f"REST {response.status}"] += 1
        connection.close()

    def grpc(self) -> None:
        """Send calls on one channel, which reconnects by itself."""
        with self.client.service.own_channel() as channel:
            client = Grpc(channel)
            while not self.stopping.is_set():
                response = client.infer([("x", "FP32", [1], [1.0])])
                if response.is_success:
                    self.kinds["ok"] += 1
                elif response.kind == "UNAVAILABLE":
                    self.kinds["refused"] += 1
                else:
                    self.kinds[f"gRPC {response.kind}"] += 1

    def probe(self) -> None:
        """Send readiness probes, with a pause between them."""
        while not self.stopping.wait(0.02):
            try:
                status = self.client.get("/v2/health/ready")
            except OSError:
                status = 0
            self.probes[status] += 1

    def stop(self) -> Counter[str]:
        """End all threads, and return the results of the inference requests."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        return self.kinds
