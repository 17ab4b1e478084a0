"""A worker's life over both protocols: loading, ready, as busy as may be, stopping, and replaced."""

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

from app.server.worker_state import PLACES, READY, STARTING, STOPPING, Board
from app.types import InferenceRequest, RequestInput
from grpc_service.converters import write_request
from tests.service.processes import Running, free_ports, gunicorn, python_path, started, wait_for, workers
from tests.service.projects import edit, make_project
from tests.service.scrapes import scrape
from tests.service.wires import KINDS, Grpc, Rest

ROOT = Path(__file__).parents[3]
BOTH = ["rest", "grpc"]
MICROSECONDS = 10**6


class Client:
    """Asks the service of `tests.service.apps` whose model waits for FOLDER/go."""

    def __init__(self, service: Running, folder: Path, stack: ExitStack):
        self.service, self.folder = service, folder
        self.pool = stack.enter_context(ThreadPoolExecutor(32))
        self.channel = stack.enter_context(grpc.insecure_channel(service.grpc))
        stack.callback((folder / "go").touch)

    def get(self, path: str) -> int:
        return rest(self.service, "GET", path)[0]

    def infer(self, protocol: str, name: str = "", timeout: int = 0) -> str:
        """The kind of the answer; `timeout` in microseconds."""
        values = {"folder": str(self.folder), "name": name}
        if protocol == "grpc":
            inputs = [(key, "BYTES", [1], [value]) for key, value in values.items()]
            # No deadline of gRPC's own.
            return Grpc(self.channel, timeout=None).infer(inputs, parameters={"timeout": timeout}).kind
        tensors = [{"name": key, "datatype": "BYTES", "shape": [1], "data": [each]} for key, each in values.items()]
        envelope = {"inputs": tensors, "parameters": {"timeout": timeout}}
        status, headers = rest(self.service, "POST", "/v2/models/test/infer", envelope)
        assert ("Retry-After" in headers) == (status == 503)
        return KINDS.get(status, str(status)) if status != 200 else "ok"

    def begin(self, protocol: str, name: str, **options: Any) -> Future[str]:
        """The same beside; the model is at it when this returns."""
        future = self.pool.submit(self.infer, protocol, name, **options)
        wait_for(lambda: self.has_begun(name))
        return future

    def is_full(self) -> bool:
        """Whether one more is refused; where there is room, one that waits a moment is past its deadline."""
        return self.infer("rest", "refused", MICROSECONDS // 100) == "UNAVAILABLE"

    def wait(self, protocol: str, name: str) -> Future[str]:
        """Asks until there is room; the kind of the answer."""

        def ask() -> str:
            while (kind := self.infer(protocol, name)) in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                pass
            return kind

        return self.pool.submit(ask)

    def ready_workers(self) -> int:
        """How many have ever been ready."""
        return self.service.ever_ready()

    def has_begun(self, name: str) -> bool:
        return (self.folder / f"{name}.begun").exists()

    def ready(self) -> set[bool]:
        """What every probe of readiness says."""
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


def test_the_probe_of_a_container(stack: ExitStack, tmp_path: Path) -> None:
    """python -m app.probe says whether the service is live, and with `ready` whether its model is loaded."""
    client = serve(stack, tmp_path, "loading", WORKERS=1, is_ready=is_live)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": str(client.service.http_port)}

    def probe(*arguments: str) -> bool:
        command = [sys.executable, "-m", "app.probe", *arguments]
        return not subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, timeout=60).returncode

    assert (probe(), probe("ready")) == (True, False)
    (tmp_path / "loaded").touch()
    wait_for(client.service.ready)
    assert (probe(), probe("ready")) == (True, True)


@pytest.mark.parametrize("workers", [1, 2])
def test_probes_while_the_model_loads(stack: ExitStack, tmp_path: Path, workers: int) -> None:
    """R5: while load() runs, the service is live and not ready, and infer is refused; then it is ready, at once."""
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


def test_a_worker_that_loads_leaves_requests_to_one_that_is_ready(stack: ExitStack, tmp_path: Path) -> None:
    """Once one worker is ready, no new connection of REST comes to another that is not."""
    (tmp_path / "go").touch()
    client = serve(stack, tmp_path, "uneven", WORKERS=2, is_ready=Running.ready)
    assert {client.infer("rest", f"early-{index}") for index in range(200)} == {"ok"}
    assert client.ready_workers() == 1
    (tmp_path / "model").touch()
    wait_for(lambda: client.ready_workers() == 2)
    assert {client.infer("rest", f"late-{index}") for index in range(20)} == {"ok"}


def test_probes_while_every_predict_is_busy(stack: ExitStack, tmp_path: Path) -> None:
    """Live and ready answer while as many predicts run, and requests wait, as may."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=2, MAX_QUEUE=2)
    running = [client.begin(protocol, protocol) for protocol in BOTH]
    waiting = [client.wait(protocol, f"{protocol} waits") for protocol in BOTH]
    wait_for(client.is_full)
    for _ in range(20):
        assert client.live()
        assert client.ready() == {True}
    (tmp_path / "go").touch()
    assert {each.result() for each in [*running, *waiting]} == {"ok"}


@pytest.mark.parametrize("protocol", BOTH)
def test_more_than_may_wait_is_refused(stack: ExitStack, tmp_path: Path, protocol: str) -> None:
    """Requests of both protocols share MAX_CONCURRENCY and MAX_QUEUE; one more is refused at once, and never run."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, MAX_QUEUE=2)
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
def test_past_its_deadline_nothing_is_begun(stack: ExitStack, tmp_path: Path, protocol: str, own: bool) -> None:
    """What waits longer than its `timeout`, or REQUEST_TIMEOUT, is refused, and never run."""
    limit = {} if own else {"REQUEST_TIMEOUT": 0.2}
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, **limit)
    running = client.begin("rest", "first")
    assert client.infer(protocol, "late", MICROSECONDS // 5 if own else 0) == "DEADLINE_EXCEEDED"
    (tmp_path / "go").touch()
    assert running.result() == "ok"
    assert client.infer(protocol, "later", MICROSECONDS * 60) == "ok"
    assert not client.has_begun("late")


@pytest.mark.parametrize("timeout", ["1", True, -1, 1.5])
def test_a_timeout_is_a_number_of_microseconds(stack: ExitStack, tmp_path: Path, timeout: Any) -> None:
    """Another `timeout` is malformed."""
    from app import create_app
    from tests.service import models

    answer = Rest(create_app(module=models.echo("FP32", [-1])).test_client()).infer(
        [("x", "FP32", [1], [1.0])], parameters={"timeout": timeout}
    )
    assert answer.kind == "INVALID_ARGUMENT"
    assert "timeout" in answer.text


@pytest.mark.parametrize("protocol", BOTH)
def test_who_leaves_while_waiting_is_not_served(stack: ExitStack, tmp_path: Path, protocol: str) -> None:
    """A call that is cancelled, or a connection that is closed, while it waits is dropped."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, MAX_QUEUE=1)
    running = client.begin("rest", "first")
    inputs = {"folder": str(tmp_path), "name": "gone"}
    request = InferenceRequest([RequestInput(name, "BYTES", [1], [text]) for name, text in inputs.items()], "test")
    for _ in range(100):  # until it waits; what asks whether it does may have taken the only place
        leave = begin_to_wait(client, protocol, request)
        if client.is_full():
            break
        leave()
    leave()
    assert client.live()  # asked over the same channel: the service has read of the leaving before it
    (tmp_path / "go").touch()
    assert running.result() == "ok"
    assert client.infer("rest", "later") == "ok"
    assert not client.has_begun("gone")


def begin_to_wait(client: Client, protocol: str, request: InferenceRequest) -> Callable[[], Any]:
    """Sends the request, and gives what leaves without the answer."""
    if protocol == "grpc":
        method = "/inference.GRPCInferenceService/ModelInfer"
        return client.channel.unary_unary(method).future(write_request(request)).cancel
    connection = http.client.HTTPConnection(client.service.http, timeout=60)
    connection.request("POST", "/v2/models/test/infer", *request.to_http())
    return connection.close


@pytest.mark.parametrize("to_all", [False, True])
def test_readiness_goes_first(stack: ExitStack, tmp_path: Path, to_all: bool) -> None:
    """On SIGTERM, also to all processes as systemd sends it, probes say not ready while requests are still answered."""
    client = serve(stack, tmp_path, WORKERS=2, DRAIN_SECONDS=2)
    (tmp_path / "go").touch()
    for pid in workers(client.service) if to_all else ():
        os.kill(pid, signal.SIGTERM)
    client.service.process.send_signal(signal.SIGTERM)
    wait_for(lambda: client.ready() == {False})
    assert client.live()
    assert {client.infer(protocol) for protocol in BOTH} == {"ok"}
    assert client.service.process.wait(60) == 0


class Load:
    """Clients that ask without a pause, and try again only what was refused."""

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


def test_new_workers_lose_nothing(stack: ExitStack, tmp_path: Path) -> None:
    """HUP replaces all workers under load: every request is answered, and the service is ready all the time."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2, DRAIN_SECONDS=5)
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


def test_hup_while_the_model_loads(stack: ExitStack, tmp_path: Path) -> None:
    """New workers that are not ready yet give way to newer ones, and do not pile up, each with a model of its own."""
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


def test_connections_of_an_old_worker(stack: ExitStack, tmp_path: Path) -> None:
    """A client of gRPC comes to the new worker while the old one has a long predict() of another's to finish."""
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


def test_an_old_worker_has_its_time(stack: ExitStack, tmp_path: Path) -> None:
    """While it finishes a call of gRPC it says that it lives: who does not is killed, long before GRACEFUL_TIMEOUT."""
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
    """When the worker has last told gunicorn that it lives, by time.monotonic(): what its file in /dev/shm says."""
    found = 0.0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed just now
            if "wgunicorn" in os.readlink(each):
                found = max(found, each.stat().st_mtime)
    return found


def test_a_pid_that_is_used_again(stack: ExitStack, tmp_path: Path) -> None:
    """A worker goes at HUP even where one of its number has gone before."""
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


def test_a_stop_loses_nothing(stack: ExitStack, tmp_path: Path) -> None:
    """A stop under load refuses what it does not answer."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2, DRAIN_SECONDS=0.5)
    load = Load(client, stack)
    wait_for(lambda: load.kinds["ok"] > 100)
    client.service.process.send_signal(signal.SIGTERM)
    assert client.service.process.wait(60) == 0
    kinds = load.stop()
    assert set(kinds) <= {"ok", "refused"}, kinds


@pytest.mark.parametrize("text", ["broken", "broken in {pid}"])
def test_a_model_that_fails_leaves_the_old_workers(stack: ExitStack, tmp_path: Path, text: str) -> None:
    """A load() that fails after HUP is told once, whatever the others say, and those that are ready go on."""
    client = serve(stack, tmp_path, "breakable", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    before = workers(client.service)
    (tmp_path / "broken").write_text(text)
    client.service.process.send_signal(signal.SIGHUP)
    told = "a new worker cannot start, and those that are ready stay: load() failed: RuntimeError: broken"
    wait_for(lambda: client.service.log().count(told) == 1 and workers(client.service) == before)
    assert client.service.log().count(told) == 1
    assert client.service.log().count("Traceback") == 1
    assert client.ready() == {True}
    assert client.infer("rest") == "ok"
    wait_for(lambda: scrape(client.service)("inference_workers") == 2)


def test_ports_that_cannot_be_opened(stack: ExitStack, tmp_path: Path) -> None:
    """A new worker that has its model, and lacks a file for gRPC by then, ends and says so."""
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
    told = "a new worker cannot start, and those that are ready stay: opening the ports failed: FileNotFoundError"
    wait_for(lambda: told in client.service.log() and workers(client.service) == before)
    (tmp_path / "away").rename(keys)
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: client.ready_workers() == 2 and not workers(client.service) & before)


def test_states_on_the_board() -> None:
    """All processes see the state of a worker, which never goes back, until a new worker gets its place."""
    board = Board()
    for state in (STOPPING, READY):
        (child := multiprocessing.get_context("fork").Process(target=board.show, args=(1, state))).start()
        child.join()
    assert board.state(1) == STOPPING
    assert not board.has_ready()
    for state in (STARTING, READY):
        board.show(1 + PLACES, state)
    assert board.has_ready()


def test_a_killed_worker_is_replaced(stack: ExitStack, tmp_path: Path) -> None:
    """The others go on, and a new one comes."""
    client = serve(stack, tmp_path, "numbers", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    lost, *_ = before = workers(client.service)
    os.kill(lost, signal.SIGKILL)
    wait_for(lambda: client.ready_workers() == 3)
    assert len(workers(client.service) - before) == 1
    for _ in range(20):
        assert client.ready() == {True}


@pytest.mark.parametrize("word", ["return {'y': x}", "raise ValueError"])
def test_a_process_that_comes_out_of_predict(stack: ExitStack, tmp_path: Path, word: str) -> None:
    """It would answer beside the worker, and take its requests."""
    project = make_project(tmp_path / "project")
    forks = f"import os\n    if x[0] == 7 and not os.fork():\n        {word}\n    return"
    edit(project, "    return {", f"    {forks} {{")
    service = stack.enter_context(gunicorn(project, WORKERS=1))
    client = stack.enter_context(closing(http.client.HTTPConnection(service.http, timeout=5)))
    (worker,) = workers(service)
    stack.callback(lambda: [os.kill(each, signal.SIGKILL) for each in alive_children(worker)])
    for value in (7, 1, 7, 2, 3, 4):
        assert added(client, value) == value + 0.5


def test_processes_of_a_model_keep_no_connection(stack: ExitStack, tmp_path: Path) -> None:
    """Where a worker is killed, its clients are told, and do not wait for what the model has started."""
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
    """Those of all its threads that have not ended."""
    found = " ".join(path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")).split()
    return [int(each) for each in found if Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] != "Z"]


def test_a_worker_that_ends_like_one_that_cannot_start(stack: ExitStack, tmp_path: Path) -> None:
    """It was ready, and so it is replaced at once."""
    client = serve(stack, tmp_path, WORKERS=1)
    wait_for(lambda: client.ready_workers() == 1)  # probes succeed a moment before the master can know it
    with pytest.raises((OSError, http.client.HTTPException)):
        client.infer("rest", "exit")
    wait_for(lambda: client.ready_workers() == 2)
    assert "cannot start" not in client.service.log()


ENDS = {
    "SystemExit": "SystemExit: no such thing",
    "KeyboardInterrupt": "KeyboardInterrupt: no such thing",
    "exit": "a worker ended before it was ready, and did not say why",
}


@pytest.mark.parametrize("word", ENDS)
def test_a_worker_that_ends_before_it_is_ready(stack: ExitStack, tmp_path: Path, word: str) -> None:
    """Whatever way it takes, behind HUP the old ones stay, and at a start it is the end."""
    client = serve(stack, tmp_path, "breakable", WORKERS=1)
    before = workers(client.service)
    (tmp_path / "broken").write_text(word)
    client.service.process.send_signal(signal.SIGHUP)
    told = f"a new worker cannot start, and those that are ready stay: {ENDS[word]}"
    wait_for(lambda: told in client.service.log() and workers(client.service) == before)
    assert client.ready() == {True}
    with (
        pytest.raises(AssertionError, match=f"(?s)exited with [1-9].*cannot start: {ENDS[word]}\n"),
        gunicorn(ROOT, "tests.service.apps:breakable()", FOLDER=tmp_path, WORKERS=2),
    ):
        pass


def test_one_that_fails_is_not_the_end_of_one_that_may_not(stack: ExitStack, tmp_path: Path) -> None:
    """A service that was ready does not stop over a new worker while another is still loading."""
    client = serve(stack, tmp_path, "breakable", WORKERS=2)
    wait_for(lambda: client.ready_workers() == 2)
    (tmp_path / "broken").write_text("first")
    for worker in workers(client.service):
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: "a new worker cannot start, and others are tried: load() failed: Run" in client.service.log())
    (tmp_path / "model").touch()
    wait_for(lambda: client.ready_workers() == 4)
    assert client.infer("grpc") == "ok"


def test_no_more_processes(stack: ExitStack, tmp_path: Path) -> None:
    """Where none can be made, those that there are serve on, and the next time may do."""
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
    wait_for(lambda: "a new worker cannot be started: [Errno 11]" in client.service.log())
    assert workers(client.service) == before
    assert client.ready() == {True}
    (tmp_path / "full").unlink()
    client.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: len(workers(client.service)) == 2 and not workers(client.service) & before)


def test_threads_of_the_model_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    """Those that are no daemons end with their worker, which nobody has to kill."""
    (tmp_path / "broken").write_text("threads")
    settings = {"FOLDER": tmp_path, "WORKERS": 1, "GRACEFUL_TIMEOUT": 1}
    with gunicorn(ROOT, "tests.service.apps:breakable()", **settings) as service:
        pass
    assert "Worker exiting" in service.last_words
    assert "SIGKILL" not in service.last_words


@pytest.mark.parametrize("heir_stays", [True, False])
def test_an_upgrade_in_place(stack: ExitStack, tmp_path: Path, heir_stays: bool) -> None:
    """USR2 starts a new master beside the old one, on its sockets; when either stops, the other serves on."""
    script = Path(sys.executable).with_name("gunicorn")  # `python -m gunicorn` cannot start itself anew
    http, grpc_port = free_ports(2)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": http, "GRPC_PORT": grpc_port, "DRAIN_SECONDS": 1, "FOLDER": tmp_path}
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
    """It is nobody's child any more."""
    os.kill(master, signal.SIGTERM)
    wait_for(lambda: has_ended(master))


def has_ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
