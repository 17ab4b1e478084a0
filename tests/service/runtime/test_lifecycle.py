"""The lifecycle of workers over both protocols: startup, overload, shutdown, reload and upgrade."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app.protocol.types import InferenceRequest, RequestInput
from app.server.worker_state import PLACES, READY, STARTING, STOPPING, WorkerState
from grpc_service.converters import write_request
from tests.service.processes import Running, free_ports, gunicorn, python_path, started, wait_for, workers
from tests.service.projects import edit, make_project
from tests.service.scrapes import scrape
from tests.service.wires import KINDS, Grpc, Rest

ROOT = Path(__file__).parents[3]
BOTH = ["rest", "grpc"]
MICROSECONDS = 10**6


class Client:
    """A client of the `waiting` service in `tests.service.apps`, whose predict() waits for the file FOLDER/go."""

    def __init__(self, service: Running, folder: Path, stack: ExitStack):
        self.service, self.folder = service, folder
        self.pool = stack.enter_context(ThreadPoolExecutor(32))
        self.channel = stack.enter_context(grpc.insecure_channel(service.grpc))
        stack.callback((folder / "go").touch)

    def get(self, path: str) -> int:
        return rest(self.service, "GET", path)[0]

    def infer(self, protocol: str, name: str = "", timeout: int = 0) -> str:
        """Return "ok" or the gRPC name of the error. `timeout` is in microseconds."""
        values = {"folder": str(self.folder), "name": name}
        if protocol == "grpc":
            inputs = [(key, "BYTES", [1], [value]) for key, value in values.items()]
            # Without a deadline of gRPC, only the parameter limits the time.
            return Grpc(self.channel, timeout=None).infer(inputs, parameters={"timeout": timeout}).kind
        tensors = [{"name": key, "datatype": "BYTES", "shape": [1], "data": [each]} for key, each in values.items()]
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
        return self.infer("rest", "refused", MICROSECONDS // 100) == "UNAVAILABLE"

    def wait(self, protocol: str, name: str) -> Future[str]:
        """Call infer() in a thread, and repeat it while the service rejects the request."""

        def ask() -> str:
            while (kind := self.infer(protocol, name)) in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                pass
            return kind

        return self.pool.submit(ask)

    def ready_workers(self) -> int:
        """Return the number of workers that have been ready since the start."""
        return self.service.ever_ready()

    def has_begun(self, name: str) -> bool:
        return (self.folder / f"{name}.begun").exists()

    def ready(self) -> set[bool]:
        """Return the distinct results of all readiness probes."""
        status = health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest()).status
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
    with closing(http.client.HTTPConnection(service.http, timeout=60)) as connection:
        connection.request(method, path, json.dumps(body) if body else None)
        response = connection.getresponse()
        response.read()
        return response.status, dict(response.getheaders())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(stack: ExitStack, folder: Path, app: str = "waiting", **settings: Any) -> Client:
    service = stack.enter_context(gunicorn(ROOT, f"tests.service.apps:{app}()", FOLDER=folder, **settings))
    return Client(service, folder, stack)


def is_live(running: Running) -> bool:
    try:
        return rest(running, "GET", "/v2/health/live")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_probe_command(stack: ExitStack, tmp_path: Path) -> None:
    """`python -m app healthcheck` succeeds if the service is live, and with `ready` only if the model is loaded."""
    client = serve(stack, tmp_path, "loading", WORKERS=1, is_ready=is_live)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": str(client.service.http_port)}

    def probe(*arguments: str) -> bool:
        command = [sys.executable, "-m", "app", "healthcheck", *arguments]
        return not subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, timeout=60).returncode

    assert (probe(), probe("ready")) == (True, False)
    (tmp_path / "loaded").touch()
    wait_for(client.service.ready)
    assert (probe(), probe("ready")) == (True, True)


@pytest.mark.parametrize("workers", [1, 2])
def test_service_is_live_but_not_ready_while_loading(stack: ExitStack, tmp_path: Path, workers: int) -> None:
    """R5: until load() returns, the service is live but not ready, and rejects inference requests."""
    client = serve(stack, tmp_path, "loading", WORKERS=workers, is_ready=is_live)
    wait_for(lambda: (tmp_path / "load.begun").exists())
    for _ in range(5):
        assert client.live()
        assert client.ready() == {False}
        assert {client.infer(protocol) for protocol in BOTH} == {"UNAVAILABLE"}
    (tmp_path / "loaded").touch()
    (tmp_path / "go").touch()
    wait_for(lambda: client.ready() == {True})
    assert {client.infer(protocol) for protocol in BOTH} == {"ok"}


def test_loading_worker_accepts_no_rest_connections(stack: ExitStack, tmp_path: Path) -> None:
    """Once one worker is ready, a worker that is still loading accepts no REST connections."""
    (tmp_path / "go").touch()
    client = serve(stack, tmp_path, "uneven", WORKERS=2, is_ready=Running.ready)
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
    assert {each.result() for each in [*running, *waiting]} == {"ok"}


@pytest.mark.parametrize("protocol", BOTH)
def test_full_queue_rejects_requests(stack: ExitStack, tmp_path: Path, protocol: str) -> None:
    """Both protocols share MAX_CONCURRENCY and MAX_QUEUE_SIZE, and a request beyond them is rejected and never runs."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, MAX_QUEUE_SIZE=2)
    running = [client.begin("rest", "first")]
    running += [client.wait(each, f"{each} waits") for each in BOTH]
    wait_for(client.is_full)
    assert client.infer(protocol, "refused") == {"rest": "UNAVAILABLE", "grpc": "RESOURCE_EXHAUSTED"}[protocol]
    (tmp_path / "go").touch()
    assert {each.result() for each in running} == {"ok"}
    assert not client.has_begun("refused")
    assert client.infer(protocol, "later") == "ok"


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("own", [True, False])
def test_expired_request_never_runs(stack: ExitStack, tmp_path: Path, protocol: str, own: bool) -> None:
    """A request that is queued for longer than its `timeout` or REQUEST_TIMEOUT_SECONDS is rejected and never runs."""
    limit = {} if own else {"REQUEST_TIMEOUT_SECONDS": 0.2}
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, **limit)
    running = client.begin("rest", "first")
    assert client.infer(protocol, "late", MICROSECONDS // 5 if own else 0) == "DEADLINE_EXCEEDED"
    (tmp_path / "go").touch()
    assert running.result() == "ok"
    assert client.infer(protocol, "later", MICROSECONDS * 60) == "ok"
    assert not client.has_begun("late")


@pytest.mark.parametrize("timeout", ["1", True, -1, 1.5])
def test_rejects_malformed_timeout(stack: ExitStack, tmp_path: Path, timeout: Any) -> None:
    """A `timeout` that is negative or not an integer is rejected."""
    from app import create_app
    from tests.service import models

    answer = Rest(create_app(module=models.echo("FP32", [-1])).test_client()).infer(
        [("x", "FP32", [1], [1.0])], parameters={"timeout": timeout}
    )
    assert answer.kind == "INVALID_ARGUMENT"
    assert "timeout" in answer.text


@pytest.mark.parametrize("protocol", BOTH)
def test_queued_request_of_disconnected_client_never_runs(stack: ExitStack, tmp_path: Path, protocol: str) -> None:
    """A queued request is dropped if its gRPC call is canceled or its connection is closed."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, MAX_QUEUE_SIZE=1)
    running = client.begin("rest", "first")
    inputs = {"folder": str(tmp_path), "name": "gone"}
    request = InferenceRequest([RequestInput(name, "BYTES", [1], [text]) for name, text in inputs.items()], "test")
    for _ in range(100):  # is_full() may take the only place in the queue first
        leave = begin_to_wait(client, protocol, request)
        if client.is_full():
            break
        leave()
    leave()
    assert client.live()  # over the same channel, so that the service has read the cancellation before
    (tmp_path / "go").touch()
    assert running.result() == "ok"
    assert client.infer("rest", "later") == "ok"
    assert not client.has_begun("gone")


def begin_to_wait(client: Client, protocol: str, request: InferenceRequest) -> Callable[[], Any]:
    """Send the request, and return a function that cancels it or closes its connection."""
    if protocol == "grpc":
        method = "/inference.GRPCInferenceService/ModelInfer"
        return client.channel.unary_unary(method).future(write_request(request)).cancel
    connection = http.client.HTTPConnection(client.service.http, timeout=60)
    connection.request("POST", "/v2/models/test/infer", *request.to_http())
    return connection.close


@pytest.mark.parametrize("to_all", [False, True])
def test_readiness_ends_before_requests_are_rejected(stack: ExitStack, tmp_path: Path, to_all: bool) -> None:
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


class Load:
    """Threads that send requests over both protocols without a pause, and count the results."""

    def __init__(self, client: Client, stack: ExitStack):
        self.client, self.stopping = client, threading.Event()
        self.kinds: Counter[str] = Counter()
        self.probes: Counter[int] = Counter()
        self.threads = [threading.Thread(target=target) for target in [self.probe, *[self.rest, self.grpc] * 4]]
        for thread in self.threads:
            thread.start()
        stack.callback(self.stop)

    def rest(self) -> None:
        connection = http.client.HTTPConnection(self.client.service.http, timeout=60)
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]})
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
                self.kinds["refused" if kind == "UNAVAILABLE" else f"gRPC {kind}" if kind != "ok" else "ok"] += 1

    def stop(self) -> Counter[str]:
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        return self.kinds


def test_reload_loses_no_requests(stack: ExitStack, tmp_path: Path) -> None:
    """SIGHUP under load replaces all workers without a failed request, and the service stays ready."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2, SHUTDOWN_DELAY_SECONDS=5)
    wait_for(lambda: client.ready_workers() == 2)
    load = Load(client, stack)
    for _ in range(2):
        before = workers(client.service)
        client.service.process.send_signal(signal.SIGHUP)
        wait_for(lambda before=before: len(workers(client.service)) == 2 and not before & workers(client.service))
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
        wait_for(lambda before=before: len(workers(client.service) - before) == 1 and len(workers(client.service)) == 2)
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
    found = 0.0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed after iterdir()
            if "wgunicorn" in os.readlink(each):
                found = max(found, each.stat().st_mtime)
    return found


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
            pytest.skip("the next process's number can be chosen by root alone")
        before = replace()
    replace()


def test_shutdown_loses_no_requests(stack: ExitStack, tmp_path: Path) -> None:
    """During a shutdown under load, each request either succeeds or is refused."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2, SHUTDOWN_DELAY_SECONDS=0.5)
    load = Load(client, stack)
    wait_for(lambda: load.kinds["ok"] > 100)
    client.service.process.send_signal(signal.SIGTERM)
    assert client.service.process.wait(60) == 0
    kinds = load.stop()
    assert set(kinds) <= {"ok", "refused"}, kinds


@pytest.mark.parametrize("text", ["broken", "broken in {pid}"])
def test_failed_reload_keeps_old_workers(stack: ExitStack, tmp_path: Path, text: str) -> None:
    """If load() fails after SIGHUP, the first reason is logged, and the old workers keep serving."""
    client = serve(stack, tmp_path, "breakable", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    before = workers(client.service)
    (tmp_path / "broken").write_text(text)
    client.service.process.send_signal(signal.SIGHUP)
    told = "New worker failed to start: load() failed: RuntimeError: broken"
    wait_for(lambda: client.service.log().count(told) == 1 and workers(client.service) == before)
    assert client.service.log().count(told) == 1
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
    told = "New worker failed to start: opening the ports failed: FileNotFoundError"
    wait_for(lambda: told in client.service.log() and workers(client.service) == before)
    (tmp_path / "away").rename(keys)
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: client.ready_workers() == 2 and not workers(client.service) & before)


def test_state_of_a_worker_never_goes_back() -> None:
    """All processes see the state of a worker, which never goes back, until a new worker gets its place."""
    states = WorkerState()
    for state in (STOPPING, READY):
        (child := multiprocessing.get_context("fork").Process(target=states.set_state, args=(1, state))).start()
        child.join()
    assert states.state(1) == STOPPING
    assert not states.has_ready()
    for state in (STARTING, READY):
        states.set_state(1 + PLACES, state)
    assert states.has_ready()


def test_killed_worker_is_replaced(stack: ExitStack, tmp_path: Path) -> None:
    """If a worker is killed, a new one replaces it, and the service stays ready."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    lost, *_ = before = workers(client.service)
    os.kill(lost, signal.SIGKILL)
    wait_for(lambda: client.ready_workers() == 3)
    assert len(workers(client.service) - before) == 1
    for _ in range(20):
        assert client.ready() == {True}


@pytest.mark.parametrize("word", ["return {'y': x}", "raise ValueError"])
def test_process_that_predict_forks_takes_no_requests(stack: ExitStack, tmp_path: Path, word: str) -> None:
    """A process that predict() forks takes no requests from the worker, even if it leaves predict()."""
    project = make_project(tmp_path / "project")
    forks = f"import os\n    if x[0] == 7 and not os.fork():\n        {word}\n    return"
    edit(project, "    return {", f"    {forks} {{")
    service = stack.enter_context(gunicorn(project, WORKERS=1))
    client = stack.enter_context(closing(http.client.HTTPConnection(service.http, timeout=5)))
    (worker,) = workers(service)
    stack.callback(lambda: [os.kill(each, signal.SIGKILL) for each in alive_children(worker)])
    for value in (7, 1, 7, 2, 3, 4):
        assert added(client, value) == value + 0.5


def test_child_process_keeps_no_connection_open(stack: ExitStack, tmp_path: Path) -> None:
    """If a worker is killed, its connections close even if a child process of the model still runs."""
    project = make_project(tmp_path / "project")
    edit(project, "    return {", "    import os, time\n    if not os.fork():\n        time.sleep(60)\n    return {")
    edit(project, "def predict", "def warm_up(model):\n    pass\n\n\ndef predict")
    service = stack.enter_context(gunicorn(project, WORKERS=1))
    client = stack.enter_context(closing(http.client.HTTPConnection(service.http, timeout=5)))
    wait_for(lambda: service.ever_ready() == 1)  # otherwise the master takes the end of the worker for a failed start
    (worker,) = workers(service)
    assert added(client, 1) == 1.5
    (child,) = alive_children(worker)
    stack.callback(os.kill, child, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    assert client.sock.recv(1) == b""


def added(client: http.client.HTTPConnection, value: float) -> float:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [value]}
    client.request("POST", "/v2/models/adder/infer", json.dumps({"inputs": [tensor]}))
    return json.loads(client.getresponse().read())["outputs"][0]["data"][0]


def alive_children(process: int) -> list[int]:
    """Return the child processes of all its threads that have not ended."""
    found = " ".join(path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")).split()
    return [int(each) for each in found if Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] != "Z"]


def test_ready_worker_with_start_failure_status_is_replaced(stack: ExitStack, tmp_path: Path) -> None:
    """A ready worker that exits with gunicorn's status for a failed start is replaced."""
    client = serve(stack, tmp_path, WORKERS=1)
    wait_for(lambda: client.ready_workers() == 1)  # probes succeed a moment before the master can know it
    with pytest.raises((OSError, http.client.HTTPException)):
        client.infer("rest", "exit")
    wait_for(lambda: client.ready_workers() == 2)
    assert "failed to start" not in client.service.log()


ENDS = {
    "SystemExit": "SystemExit: no such thing",
    "KeyboardInterrupt": "KeyboardInterrupt: no such thing",
    "exit": "a worker ended before it was ready, without an error message",
}


@pytest.mark.parametrize("word", ENDS)
def test_worker_that_ends_before_it_is_ready(stack: ExitStack, tmp_path: Path, word: str) -> None:
    """If a new worker ends before it is ready, a reload keeps the old workers, and a start fails."""
    client = serve(stack, tmp_path, "breakable", WORKERS=1)
    before = workers(client.service)
    (tmp_path / "broken").write_text(word)
    client.service.process.send_signal(signal.SIGHUP)
    told = f"New worker failed to start: {ENDS[word]}"
    wait_for(lambda: told in client.service.log() and workers(client.service) == before)
    assert client.ready() == {True}
    with (
        pytest.raises(AssertionError, match=f"(?s)exited with [1-9].*cannot start: {ENDS[word]}\n"),
        gunicorn(ROOT, "tests.service.apps:breakable()", FOLDER=tmp_path, WORKERS=2),
    ):
        pass


def test_failed_worker_does_not_stop_service_while_another_loads(stack: ExitStack, tmp_path: Path) -> None:
    """A service that was ready does not stop if one new worker fails while another is still loading."""
    client = serve(stack, tmp_path, "breakable", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    (tmp_path / "broken").write_text("first")
    for worker in workers(client.service):
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: "New worker failed to start: load() failed: Run" in client.service.log())
    (tmp_path / "model").touch()
    wait_for(lambda: client.ready_workers() == 4)
    assert client.infer("grpc") == "ok"


def test_failed_fork_keeps_old_workers(stack: ExitStack, tmp_path: Path) -> None:
    """If a reload cannot fork a worker, the old workers keep serving, and a later reload succeeds."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nfork = os.fork\n"
        f"def refusing():\n    if os.path.exists({str(tmp_path / 'full')!r}):\n"
        "        raise BlockingIOError(11, 'Resource temporarily unavailable')\n    return fork()\n"
        "os.fork = refusing\n"
    )
    client = serve(stack, tmp_path, "numbers", WORKERS=2, PYTHONPATH=python_path(tmp_path))
    before = workers(client.service)
    (tmp_path / "full").touch()
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "Cannot fork a worker: [Errno 11]" in client.service.log())
    assert workers(client.service) == before
    assert client.ready() == {True}
    (tmp_path / "full").unlink()
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: len(workers(client.service)) == 2 and not workers(client.service) & before)


def test_threads_of_model_do_not_delay_shutdown(tmp_path: Path) -> None:
    """A worker exits without SIGKILL even if the model has started non-daemon threads."""
    (tmp_path / "broken").write_text("threads")
    settings = {"FOLDER": tmp_path, "WORKERS": 1, "SHUTDOWN_TIMEOUT_SECONDS": 1}
    with gunicorn(ROOT, "tests.service.apps:breakable()", **settings) as service:
        pass
    assert "Worker exiting" in service.last_words
    assert "SIGKILL" not in service.last_words


@pytest.mark.parametrize("heir_stays", [True, False])
def test_upgrade_in_place(stack: ExitStack, tmp_path: Path, heir_stays: bool) -> None:
    """SIGUSR2 starts a second master on the same sockets, and if either stops, the other keeps serving."""
    script = Path(sys.executable).with_name("gunicorn")  # `python -m gunicorn` cannot re-execute itself
    http, grpc_port = free_ports(2)
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc_port,
        "SHUTDOWN_DELAY_SECONDS": 1,
        "FOLDER": tmp_path,
    }
    (tmp_path / "go").touch()
    command = [sys.executable, script, "tests.service.apps:waiting()", "--workers", "1"]
    service = stack.enter_context(started(command, ROOT, settings))
    client = Client(service, tmp_path, stack)
    old = workers(service)
    service.process.send_signal(signal.SIGUSR2)
    wait_for(lambda: client.ready_workers() == 2)
    (heir,) = workers(service) - old
    if heir_stays:
        stack.callback(stop_heir, heir)
        service.process.terminate()
        assert service.process.wait(60) == 0
    else:
        stop_heir(heir)
        wait_for(lambda: workers(service) == old)
    assert [client.infer(protocol, "later") for protocol in BOTH for _ in range(3)] == ["ok"] * 6


def stop_heir(master: int) -> None:
    """Stop a master that is not a child of this process, and wait until it has ended."""
    os.kill(master, signal.SIGTERM)
    wait_for(lambda: has_ended(master))


def has_ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
