"""The service as users run it, under gunicorn with both protocols."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest

from tests.service.processes import Running, free_ports, gunicorn, python_path, wait_for, workers
from tests.service.projects import edit, make_project
from tests.service.wires import Grpc

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A BYTES echo with two workers and a limit of 1 MiB per request."""
    with gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=2, MAX_REQUEST_BYTES=2**20) as service:
        yield service


@pytest.fixture
def connection(running: Running) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(running.http, timeout=30)
    yield connection
    connection.close()


def post(connection: http.client.HTTPConnection, body: Any, path: str = "/v2/models/test/infer") -> tuple[int, Any]:
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def post_alone(service: Running, body: Any, path: str = "/v2/models/test/infer") -> tuple[int, Any]:
    """Call post() with a separate connection."""
    with closing(http.client.HTTPConnection(service.http, timeout=60)) as connection:
        return post(connection, body, path)


def tensor(name: str, *values: str) -> dict[str, Any]:
    return {"name": name, "datatype": "BYTES", "shape": [len(values)], "data": values}


GOOD = {"inputs": [tensor("x", "a", "b")]}


def test_serves_both_protocols(running: Running) -> None:
    """REST and gRPC work at the same time, whichever worker accepts the connection."""
    for _ in range(8):
        assert post_alone(running, GOOD)[0] == 200
        with running.own_channel() as channel:
            answer = Grpc(channel).infer([("x", "BYTES", [2], ["a", "b"])])
            assert answer.outputs == {"y": ("BYTES", [2], [b"a", b"b"])}, answer


def answered_by(service: Running) -> set[int]:
    """Return the PIDs of the workers that have served gRPC calls, from the log."""
    lines = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    return {line["pid"] for line in lines if line.get("protocol") == "grpc"}


def test_maximum_connection_age_spreads_calls(tmp_path: Path) -> None:
    """After GRPC_MAX_CONNECTION_AGE_SECONDS, a channel reconnects and can reach another worker. No call fails."""
    settings = {"WORKERS": 2, "LOG_FORMAT": "json", "GRPC_MAX_CONNECTION_AGE_SECONDS": 0.2}
    quick, long = tmp_path / "quick", tmp_path / "long"
    for each in (quick, long):
        each.mkdir()
    (quick / "go").touch()

    def call(folder: Path) -> str:
        return client.infer([("folder", "BYTES", [1], [str(folder)]), ("name", "BYTES", [1], ["x"])]).kind

    with (
        gunicorn(ROOT, "tests.service.apps:waiting()", **settings) as service,
        grpc.insecure_channel(service.grpc) as channel,
        ThreadPoolExecutor() as pool,
    ):
        client = Grpc(channel, timeout=60)
        waiting = pool.submit(call, long)
        wait_for((long / "x.begun").exists)
        kinds = set()

        def both_have_answered() -> bool:
            kinds.update(pool.map(call, [quick] * 8))
            return len(answered_by(service)) == 2

        wait_for(both_have_answered)
        (long / "go").touch()
        assert kinds | {waiting.result()} == {"ok"}


def test_grpc_channel_keeps_its_worker() -> None:
    """By default, a channel keeps one connection to one worker."""
    with gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=2, LOG_FORMAT="json") as service:
        with grpc.insecure_channel(service.grpc) as channel:
            client = Grpc(channel)
            for _ in range(100):
                assert client.infer([("x", "BYTES", [1], ["a"])]).kind == "ok"
        wait_for(lambda: service.log().count('"protocol":"grpc"') == 100)
        assert len(answered_by(service)) == 1


BAD_BODIES = [b"", b"[]", b"null", b"{", b"[" * 100_000, b'{"inputs": 5}', b"\xff", json.dumps(GOOD).encode()[:-2]]


def test_malformed_body_keeps_connection_open(connection: http.client.HTTPConnection) -> None:
    """R20: after a malformed body, the connection stays open for the next request."""
    for body in BAD_BODIES:
        status, answer = post(connection, body)
        assert (status, list(answer)) == (400, ["error"])
        sock = connection.sock
        assert post(connection, GOOD)[0] == 200
        assert connection.sock is sock


@pytest.mark.parametrize("sizes", [[500_000], [10, 70_000, 300_000], [2**16] * 3], ids=str)
@pytest.mark.parametrize("step", [3_000, 2**17, 2**22])
def test_large_bodies_in_pieces(running: Running, sizes: list[int], step: int) -> None:
    """B3: pipelined requests of any size, sent in pieces of any size, each get their own response."""
    texts = [str(index) * size for index, size in enumerate(sizes)]
    sent = b""
    for text in texts:
        body = json.dumps({"inputs": [tensor("x", text)]}).encode()
        sent += b"POST /v2/models/test/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(("127.0.0.1", running.http_port), timeout=30) as sock, ThreadPoolExecutor() as pool:
        pool.submit(lambda: [sock.sendall(sent[place : place + step]) for place in range(0, len(sent), step)])
        answers = sock.makefile("rb")
        for text in texts:
            assert answers.readline().startswith(b"HTTP/1.1 200")
            length = int(http.client.parse_headers(answers)["Content-Length"])
            assert json.loads(answers.read(length))["outputs"][0]["data"] == [text]


@pytest.mark.parametrize("chunked", [False, True])
def test_rejects_too_large_body(connection: http.client.HTTPConnection, chunked: bool) -> None:
    """R19: a client that sends too large a body can read the 413 response, and can reconnect."""
    blocks = (b"x" * 2**16 for _ in range(2**7))
    headers = {} if chunked else {"Content-Length": str(2**23)}
    connection.request("POST", "/v2/models/test/infer", blocks, headers, encode_chunked=chunked)
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read()) == {
        "error": "the body is too large: expected at most 1048576 bytes (MAX_REQUEST_BYTES)"
    }
    connection.close()
    assert post(connection, GOOD)[0] == 200


def test_rejects_too_large_content_length(running: Running) -> None:
    """R19: the server responds with 413 to too large a Content-Length before it receives the body."""
    with socket.create_connection(("127.0.0.1", running.http_port), timeout=30) as sock:
        sock.sendall(b"POST /v2/models/test/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert sock.makefile("rb").readline().startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", [100, 2**17])
def test_rejects_incomplete_body(length: int, running: Running, connection: http.client.HTTPConnection) -> None:
    """R20: a body that is shorter than its Content-Length results in status 400."""
    with socket.create_connection(("127.0.0.1", running.http_port), timeout=30) as sock:
        head = b"POST /v2/models/test/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length
        sock.sendall(head + b'{"inputs"')
        sock.shutdown(socket.SHUT_WR)
        assert sock.makefile("rb").readline().startswith(b"HTTP/1.1 400")
    assert post(connection, GOOD)[0] == 200


def test_sigterm_completes_running_requests(tmp_path: Path) -> None:
    """On SIGTERM, running REST and gRPC requests complete, and gunicorn exits with status 0."""
    names = ["rest", "grpc"]
    with (
        gunicorn(ROOT, "tests.service.apps:waiting()", WORKERS=2) as service,
        grpc.insecure_channel(service.grpc) as channel,
        ThreadPoolExecutor() as pool,
    ):
        rest = pool.submit(post_alone, service, {"inputs": [tensor("folder", str(tmp_path)), tensor("name", "rest")]})
        inputs = [("folder", "BYTES", [1], [str(tmp_path)]), ("name", "BYTES", [1], ["grpc"])]
        call = pool.submit(Grpc(channel).infer, inputs)
        wait_for(lambda: all((tmp_path / f"{name}.begun").exists() for name in names))
        service.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "Handling signal: term" in service.log())
        wait_for(lambda: not service.ready())
        (tmp_path / "go").touch()
        assert rest.result()[0] == 200
        assert call.result().outputs["done"] == ("BYTES", [1], [b"grpc"])
        assert service.process.wait(60) == 0


def test_sighup_replaces_workers(tmp_path: Path) -> None:
    """SIGHUP replaces the workers, and the new ones serve both protocols."""

    def booted() -> set[str]:
        return set(re.findall(r"Booting worker with pid: (\d+)", service.log()))

    with gunicorn(ROOT, "tests.service.apps:echoing()") as service:
        before = booted()
        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(booted()) == 2 * len(before) and service.log().count("Worker exiting") == len(before))
        assert post_alone(service, GOOD)[0] == 200
        with grpc.insecure_channel(service.grpc) as channel:
            assert Grpc(channel).infer([("x", "BYTES", [1], ["a"])]).kind == "ok"


@pytest.mark.parametrize("threads", [1, 3])
def test_unclosed_client_connections_delay_no_requests(threads: int) -> None:
    """A client that does not close its side of a finished connection does not delay other clients."""
    with (
        gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, MAX_CONCURRENCY=threads) as service,
        ExitStack() as held,
    ):
        for _ in range(30):  # takes a minute if the server waits for each client
            sock = held.enter_context(socket.create_connection(("127.0.0.1", service.http_port), timeout=30))
            sock.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        assert post_alone(service, GOOD)[0] == 200


def test_closes_idle_connections() -> None:
    """The server closes a connection that is idle for KEEPALIVE_SECONDS, before and after its first request."""
    with gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, KEEPALIVE_SECONDS=1) as service:
        for request in (b"", b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", service.http_port), timeout=30) as sock:
                sock.sendall(request)
                answer = b"".join(iter(lambda sock=sock: sock.recv(1000), b""))
                assert answer.startswith(b"HTTP/1.1 200 OK" if request else b"")
                assert answer.count(b"HTTP/1.1") == bool(request)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
@pytest.mark.parametrize("preload", ["off", "on"])
def test_releases_memory_that_load_freed(preload: str) -> None:
    """A worker returns the memory that load() has freed to the operating system."""
    with gunicorn(ROOT, "tests.service.apps:wasteful()", PRELOAD_MODEL=preload) as service:
        body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [0]}]}
        status, answer = post_alone(service, body)
        assert status == 200
        assert answer["outputs"][0]["data"][0] > 50


@pytest.mark.parametrize("allowed", ["127.0.0.1", "10.0.0.1,127.0.0.0/8", "*", "10.0.0.1", ""])
def test_forwarded_proto(allowed: str) -> None:
    """X-Forwarded-Proto sets the URL scheme of its request if FORWARDED_ALLOW_IPS contains the client."""
    scheme = "http" if allowed in ("10.0.0.1", "") else "https"
    with (
        gunicorn(ROOT, "tests.service.apps:telling()", FORWARDED_ALLOW_IPS=allowed) as service,
        closing(http.client.HTTPConnection(service.http, timeout=30)) as connection,
    ):
        for headers, expected in [({"X-Forwarded-Proto": "https"}, scheme), ({}, "http")] * 2:
            connection.request("GET", "/where", headers=headers)
            assert connection.getresponse().read().decode() == f"{expected}://{service.http}/where"


def test_date_header(connection: http.client.HTTPConnection) -> None:
    """The Date header of each response has the current second."""
    dates = set()

    def have_passed_a_second() -> bool:
        earliest = int(time.time())
        connection.request("GET", "/v2/health/live")
        response = connection.getresponse()
        response.read()
        date = response.headers["Date"]
        assert date in [formatdate(second, usegmt=True) for second in range(earliest, int(time.time()) + 1)]
        dates.add(date)
        return len(dates) > 2

    wait_for(have_passed_a_second)


def test_long_requests_run_concurrently(tmp_path: Path) -> None:
    """Long requests run concurrently, up to MAX_CONCURRENCY, and health checks still respond."""
    names = ["one", "two"]
    with (
        gunicorn(ROOT, "tests.service.apps:waiting()", WORKERS=1, MAX_CONCURRENCY=3) as service,
        ThreadPoolExecutor() as pool,
    ):
        for _ in range(100):
            assert service.ready()
        running = [
            pool.submit(post_alone, service, {"inputs": [tensor("folder", str(tmp_path)), tensor("name", name)]})
            for name in names
        ]
        wait_for(lambda: all((tmp_path / f"{name}.begun").exists() for name in names))
        assert service.ready()
        (tmp_path / "go").touch()
        assert [each.result()[0] for each in running] == [200, 200]


def test_more_connections_than_threads() -> None:
    """A few threads serve hundreds of persistent connections."""
    request = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, MAX_CONCURRENCY=2, MAX_QUEUE_SIZE=0) as service,
        ExitStack() as held,
    ):
        socks = [
            held.enter_context(socket.create_connection(("127.0.0.1", service.http_port), timeout=30))
            for _ in range(300)
        ]
        for _ in range(3):
            for sock in socks:
                sock.sendall(request)
            for sock in socks:
                answer = b""
                while not answer.endswith(b'{"live":true}'):
                    answer += sock.recv(1000)


def test_works_without_linux_features() -> None:
    """Without the Linux features that macOS lacks, both protocols work, and REST connections stay open."""
    path = python_path(ROOT / "tests/service/macos")
    text = "a" * 20_000_000
    body = json.dumps({"inputs": [tensor("x", text)]}).encode()
    with (
        gunicorn(ROOT, "tests.service.apps:without_epoll()", WORKERS=2, PYTHONPATH=path) as service,
        grpc.insecure_channel(service.grpc) as channel,
        ExitStack() as stack,
        ThreadPoolExecutor(16) as pool,
    ):
        kept = [stack.enter_context(closing(http.client.HTTPConnection(service.http, timeout=60))) for _ in range(100)]
        for _ in range(3):
            assert [status for status, _ in pool.map(lambda each: post(each, GOOD), kept)] == [200] * len(kept)
        socks = [each.sock for each in kept]
        assert post(kept[0], body)[1]["outputs"][0]["data"] == [text]
        blocks = (body[place : place + 2**16] for place in range(0, len(body), 2**16))
        kept[0].request("POST", "/v2/models/test/infer", blocks, encode_chunked=True)
        assert json.loads(kept[0].getresponse().read())["outputs"][0]["data"] == [text]
        assert [each.sock for each in kept] == socks
        assert Grpc(channel).infer([("x", "BYTES", [2], ["a", "b"])]).outputs == {"y": ("BYTES", [2], [b"a", b"b"])}


def test_read_only_shared_memory(tmp_path: Path) -> None:
    """If /dev/shm is read-only, the service stores metrics and heartbeats in another directory."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "allowed = os.access\n"
        "os.access = lambda path, *mode, **how: str(path) != '/dev/shm' and allowed(path, *mode, **how)\n"
    )
    with gunicorn(ROOT, "tests.service.apps:echoing()", PYTHONPATH=python_path(tmp_path)) as service:
        for worker in workers(service):
            files = [os.path.realpath(each) for each in Path(f"/proc/{worker}/fd").iterdir()]  # some are closed by now
            assert any("wgunicorn-" in each for each in files)
            assert not any(each.startswith("/dev/shm/") for each in files)


def test_startup_message_has_working_command() -> None:
    """The startup message shows the gRPC address, the PID for signals, and a curl command that works."""
    with gunicorn(ROOT, "tests.service.apps:echoing()") as service:
        wait_for(lambda: "curl" in service.log())
        assert f"gRPC  {service.grpc}\n" in service.log()
        assert f"PID   {service.process.pid}: HUP " in service.log()
        _, url, _, body = shlex.split(re.search(r"curl .*", service.log()).group())  # type: ignore[union-attr]
        parts = urlsplit(url)
        assert parts.netloc == service.http
        assert post_alone(service, body.encode(), parts.path)[0] == 200


def test_startup_message_for_large_input(tmp_path: Path) -> None:
    """For a large input, the curl command in the startup message reads a file, and a comment has the example's URL."""
    (tmp_path / "keys").write_text("secret-of-the-test\n")
    with gunicorn(ROOT, "tests.service.apps:measuring()", UI_ENABLED="off", API_KEYS_FILE=tmp_path / "keys") as service:
        wait_for(lambda: "curl" in service.log())
        call = re.search(r"curl .*", service.log()).group()  # type: ignore[union-attr]
        url = re.search(r"# (http://.*) has an example", call).group(1)  # type: ignore[union-attr]
        headers = {"Authorization": "Bearer secret-of-the-test"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
            paths = json.load(response)["paths"]
        example = paths["/v2/models/{name}/infer"]["post"]["requestBody"]["content"]["application/json"]["example"]
        (tmp_path / "request.json").write_text(json.dumps(example))
        env = {**os.environ, "API_KEY": "secret-of-the-test", "no_proxy": "127.0.0.1"}
        done = subprocess.run(["bash", "-c", call], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["outputs"][0]["data"] == [1.0]


def start(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to fail at startup."""
    http_port, grpc_port = free_ports(2)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": str(http_port), "GRPC_PORT": str(grpc_port), **environment}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("command", [("gunicorn", "app:create_app()"), ("grpc_service",)])
def test_invalid_setting_stops_startup(command: tuple[str, ...]) -> None:
    """Startup fails with an error that names the setting, without a traceback."""
    done = start(*command, MAX_REQUEST_BYTES="64MB")
    assert done.returncode != 0
    assert "cannot start: MAX_REQUEST_BYTES='64MB': expected a whole number" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (("gunicorn", "app:create_app()"), "HTTP_PORT"),
        (("gunicorn", "app:create_app()"), "GRPC_PORT"),
        (("grpc_service",), "GRPC_PORT"),
    ],
)
def test_port_in_use_stops_startup(running: Running, command: tuple[str, ...], variable: str) -> None:
    """Startup fails with an error that names a port in use, even though the workers of one service share ports."""
    port = running.http_port if variable == "HTTP_PORT" else running.grpc_port
    done = start(*command, **{variable: str(port)})
    assert done.returncode != 0
    assert f"cannot start: {variable}={port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_unavailable_address_stops_startup() -> None:
    """Startup fails with an error that names HOST if the service cannot listen on this address."""
    done = start("gunicorn", "app:create_app()", HOST="192.0.2.1")
    assert done.returncode != 0
    assert "cannot start: HOST=192.0.2.1: " in done.stderr


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("disagreeing", 'predict() and METADATA disagree: predict() takes "x" after the model, METADATA declares none'),
        ("unloadable", "FileNotFoundError: the model file is gone"),
    ],
)
@pytest.mark.parametrize(("workers", "preload"), [(1, "off"), (3, "off"), (3, "on")])
def test_invalid_model_stops_startup(app: str, text: str, workers: int, preload: str) -> None:
    """If predict() does not match METADATA or load() raises an exception, gunicorn logs the error once and exits."""
    done = start("gunicorn", f"tests.service.apps:{app}()", WORKERS=str(workers), PRELOAD_MODEL=preload)
    assert done.returncode != 0
    assert "HaltServer" not in done.stderr
    *_, last = done.stderr.splitlines()
    assert "cannot start: " in last
    assert text in last
    assert done.stderr.count("Traceback") == (app == "unloadable")


@contextmanager
def grpc_alone(root: Path) -> Iterator[Grpc]:
    """Run `python -m grpc_service` in `root`, and yield a client when it is ready. It must exit with 0 on SIGTERM."""
    (port,) = free_ports(1)
    environment = {**os.environ, "HOST": "127.0.0.1", "GRPC_PORT": str(port)}
    with subprocess.Popen([sys.executable, "-m", "grpc_service"], cwd=root, env=environment) as process:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(60)
                client = Grpc(channel)
                wait_for(lambda: client.call("ServerReady").ready)
                yield client
        finally:
            process.terminate()
        assert process.wait(60) == 0


WASTEFUL = """import os


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20


def load():
    blocks = [b"x" * 2**20 for _ in range(60)]
    return resident()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_standalone_grpc_releases_memory_that_load_freed(tmp_path: Path) -> None:
    """`python -m grpc_service` returns the memory that load() has freed to the operating system."""
    edit(make_project(tmp_path), "def load():\n", WASTEFUL)
    edit(tmp_path, "x + model", "x + model - resident()")
    with grpc_alone(tmp_path) as client:
        _, _, (freed,) = client.infer([("x", "FP32", [1], [0.0])], model="adder").outputs["y"]
        assert freed > 50


@pytest.mark.parametrize("command", [("gunicorn", "tests.service.apps:unloadable()"), ("grpc_service",)])
def test_warns_of_settings_without_effect(command: tuple[str, ...], tmp_path: Path) -> None:
    """Before the model is loaded, warnings name a misspelled setting, and a setting without effect."""
    done = start(*command, API_KEY_FILE="keys.txt", MAX_BATCH_DELAY_MS="5", MODEL_DIR=str(tmp_path), WORKERS="1")
    assert "API_KEY_FILE is not a setting. Did you mean API_KEYS_FILE?" in done.stderr
    assert "MAX_BATCH_DELAY_MS has no effect without MAX_BATCH_SIZE." in done.stderr


def test_standalone_grpc_exit_status(tmp_path: Path) -> None:
    """`python -m grpc_service` exits with 4 if predict() does not match METADATA, and with 1 for other errors."""
    assert start("grpc_service", GRPC_PORT="x").returncode == 1
    edit(make_project(tmp_path), "def predict(model, ", "def predict(model, other, ")
    command = [sys.executable, "-m", "grpc_service"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "predict() and METADATA disagree" in done.stderr) == (4, True)


def test_standalone_grpc() -> None:
    """`python -m grpc_service` serves gRPC without REST, and exits with 0 on SIGTERM."""
    with grpc_alone(ROOT) as client:
        assert client.call("ServerReady").ready
