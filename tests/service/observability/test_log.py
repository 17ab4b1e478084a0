"""The log as text and as JSON: its content, its format, and the data that it must not contain."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from app import create_app
from app.inference.context import RequestContext, current_contexts
from app.observability import log
from app.observability.observer_queue import CHUNK, ObserverQueue
from app.protocol.types import InferenceRequest, RequestInput
from grpc_service.converters import write_request
from tests.service import models
from tests.service.apps import FORGED
from tests.service.processes import Running, free_ports, gunicorn, wait_for
from tests.service.runtime.test_gunicorn import start
from tests.service.scrapes import scrape
from tests.service.wires import Grpc

ROOT = Path(__file__).parents[3]
FORMATS = ["text", "json"]
BOTH = ["rest", "grpc"]
INFER = "/inference.GRPCInferenceService/ModelInfer"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
SECRET = "Sesame-4711"
TIMES = ["decode_ms", "queue_ms", "predict_ms", "encode_ms", "duration_ms"]
LABELS = {"rest": "POST /v2/models/test/infer", "grpc": "gRPC ModelInfer"}
REST_FIELDS = {"http_method": "POST", "path": "/v2/models/test/infer", "client_address": "127.0.0.1"}
# A text line: timestamp, level, logger, request id (if any) and message.
LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ([A-Z]+) ([\w.]+)(?: \[(\S+)\])?: (.*)")
PART = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|[\d.]+)(?= |$)')


def parse(text: str, log_format: str) -> list[dict[str, Any]]:
    """Return the records of a log. In text, indented lines, such as a traceback, belong to the line before them."""
    lines: list[dict[str, Any]] = []
    for line in text.split("\n")[:-1]:
        if log_format == "json":
            lines.append(json.loads(line))
            assert line.isprintable()
        elif found := LINE.fullmatch(line):
            timestamp, level, logger, request_id, said = found.groups()
            parts = {name: json.loads(value) for name, value in PART.findall(said)}
            message = PART.split(said)[0]
            head = {"timestamp": timestamp, "level": level, "logger": logger, "message": message}
            lines.append({**head, "stacktrace": "", **parts})
            if request_id:
                lines[-1]["request_id"] = request_id
        else:
            assert line.startswith("  ") or not line, line
            assert line.isprintable()
            lines[-1]["stacktrace"] += line + "\n"
    return lines


class Client:
    """Send requests over REST or gRPC and return the status, the request id and the sizes of both bodies."""

    def __init__(self, service: Running, channel: grpc.Channel):
        self.service, self.channel = service, channel

    def infer(
        self, protocol: str, value: str = "a", name: str = "test", **headers: str
    ) -> tuple[str, str | None, tuple[int, int]]:
        request = InferenceRequest([RequestInput("x", "BYTES", [1], [value])], name)
        if protocol == "grpc":
            return self.call(INFER, write_request(request), **headers)
        return self.post(f"/v2/models/{quote(name, safe='')}/infer", request.to_json(), **headers)

    def post(self, path: str, body: bytes | None, method: str = "POST", **headers: str) -> Any:
        with closing(http.client.HTTPConnection(self.service.http, timeout=60)) as connection:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            sizes = len(body or b""), len(response.read())
            return str(response.status), response.headers["X-Request-Id"], sizes

    def call(self, method: str, body: bytes, **headers: str) -> Any:
        metadata = [(name.replace("_", "-"), value) for name, value in headers.items()]
        call = self.channel.unary_unary(method).with_call
        try:
            answer, told = call(body, metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            answer, told = b"", error
        return told.code().name, dict(told.trailing_metadata() or ()).get("x-request-id"), (len(body), len(answer))


class Run:
    """A service that receives the test's requests and stops. It keeps the responses and the whole log."""

    def __init__(self, log_format: str):
        self.told: dict[str, tuple[str, tuple[int, int]]] = {}
        # The last requests may be logged during shutdown.
        with (
            gunicorn(ROOT, "tests.service.apps:talking()", LOG_FORMAT=log_format, WORKERS=2) as service,
            grpc.insecure_channel(service.grpc) as channel,
        ):
            client = Client(service, channel)
            self.ask(client)
            self.ask_much(client)
        self.log = service.last_words
        self.lines = parse(self.log, log_format)

    def ask(self, client: Client) -> None:
        for protocol in BOTH:
            for value in ("good", "talk", "fail"):
                name = f"{protocol}-{value}"
                status, told, sizes = client.infer(protocol, value, x_request_id=name, traceparent=TRACEPARENT)
                self.told[name] = status, sizes
                assert told == name
            client.infer(protocol, SECRET)
            client.infer(protocol, name=FORGED, x_request_id=f"{protocol}-forged")
            for method in ("ServerLive", "ServerReady"):
                client.call(f"/inference.GRPCInferenceService/{method}", b"", x_request_id="probe")
        for path in ("live", "ready"):
            assert client.post(f"/v2/health/{path}", None, "GET", x_request_id="probe")[:2] == ("200", "probe")
        client.post("/" + quote(FORGED), None, "GET", x_request_id='"]:\\{}')
        for data in ([SECRET], [[SECRET], [1, SECRET]], {SECRET: SECRET}, SECRET):
            for datatype in ("BYTES", "FP32", SECRET):
                tensor = {"name": "x", "datatype": datatype, "shape": [1], "data": data}
                for body in ({"inputs": [tensor]}, {"inputs": tensor}, {"inputs": data, "parameters": data}):
                    client.post("/v2/models/test/infer", json.dumps(body).encode())
        with socket.create_connection(("127.0.0.1", client.service.http_port)) as connection:
            head = b"GET /v2 HTTP/1.1\r\nHost: x\r\n"
            connection.sendall(head + b"X-Request-Id: before\r\n\r\n" + head + b"No Header: 1\r\n\r\n")
            while connection.recv(2**16):
                pass
        client.post("/v2/models/test/infer", SECRET.encode())
        client.call(INFER, SECRET.encode())

    def ask_much(self, client: Client) -> None:
        with ThreadPoolExecutor(8) as pool:
            for index in range(300):
                pool.submit(client.infer, BOTH[index % 2], x_request_id=f"many-{index}")

    def of(self, request_id: str, logger: str = "app.requests") -> list[dict[str, Any]]:
        return [each for each in self.lines if each.get("request_id") == request_id and each["logger"] == logger]


@pytest.fixture(scope="module", params=FORMATS)
def run(request: pytest.FixtureRequest) -> Run:
    return Run(request.param)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        gunicorn(ROOT, "tests.service.apps:talking()", LOG_LEVEL="WARNING", LOG_FORMAT="json") as service,
        grpc.insecure_channel(service.grpc) as channel,
    ):
        yield Client(service, channel)


@pytest.mark.parametrize("protocol", BOTH)
def test_each_request_has_one_line(run: Run, protocol: str) -> None:
    """A request has one line, at its level, with its id, trace, protocol, method, status, sizes and times."""
    for value, level in (("good", "INFO"), ("fail", "ERROR")):
        name = f"{protocol}-{value}"
        (line,) = run.of(name)
        status, (received, sent) = run.told[name]
        assert line["message"] == f"{LABELS[protocol]} {status}"
        assert (line["level"], line["request_bytes"]) == (level, received)
        assert (line["trace_id"], line["span_id"]) == (TRACE, SPAN)
        assert value == "fail" or line["response_bytes"] == sent
        assert all(0 <= line[each] <= line["duration_ms"] for each in TIMES if value == "good" or each in line)
        if "pid" in line:
            assert (line["protocol"], line["operation"]) == (protocol, "infer")
            own = {**REST_FIELDS, "http_status": int(status)} if protocol == "rest" else {"grpc_status": status}
            assert own.items() <= line.items()
    assert line["error_type"] == "ModelError"
    assert "forged" in line["error_message"]


def test_no_line_is_lost_under_load(run: Run) -> None:
    """Under load and with two workers, each request has exactly one line, up to the last before shutdown."""
    names = [each["request_id"] for each in run.lines if each.get("request_id", "").startswith("many-")]
    assert sorted(names) == sorted(f"many-{index}" for index in range(300))


def test_every_logger_uses_the_format(run: Run) -> None:
    """Lines of gunicorn, the service, warnings and unhandled exceptions of threads use the same format."""
    messages = {(each["logger"], each["message"]) for each in run.lines}
    for logger, said in [
        ("gunicorn.error", "Starting gunicorn "),
        ("gunicorn.error", "Handling signal: term"),
        ("gunicorn.error", "Shutting down: Master"),
        ("app.runtime.lifecycle", "the model was loaded in "),
        ("py.warnings", "UserWarning: "),
    ]:
        assert any(each == logger and said in message for each, message in messages), said
    (died, *_) = (each for each in run.lines if each["message"] == "Unhandled exception")
    assert "IndexError" in died["stacktrace"]
    if "pid" in died:
        assert died["error_type"] == "IndexError"
        assert died["error_message"].startswith("IndexError: ")


@pytest.mark.parametrize("protocol", BOTH)
def test_log_lines_of_predict_have_the_request_id(run: Run, protocol: str) -> None:
    """A line that predict() logs and its traceback have the request id, and a field from `extra` is kept."""
    talked, failed = run.of(f"{protocol}-talk", "model")
    assert talked["message"].startswith("about \\n" if "pid" not in talked else "about \n")
    assert (talked["size"], talked["text"]) == (1, FORGED)
    assert failed["message"].startswith("a record of ")
    assert "apps.py" in failed["message"]
    (raised,) = run.of(f"{protocol}-fail", "app.inference.adapter")
    assert (raised["level"], raised["message"]) == ("ERROR", "predict() raised")
    assert "Traceback" in raised["stacktrace"]
    assert "ValueError" in raised["stacktrace"]


def test_rejected_request_has_no_id(run: Run) -> None:
    """The line about a malformed request has neither the id of the request before it nor anything that was sent."""
    (line,) = (each for each in run.lines if each["message"].startswith("Rejected a request"))
    assert "request_id" not in line
    assert line["message"] == "Rejected a request: 400, the request is malformed: Invalid header token"


def test_newlines_are_escaped(run: Run) -> None:
    """A newline in a path, a model name or an error message is escaped and does not start a new line."""
    assert not [each for each in run.lines if each["message"].startswith("forged")]
    for name in ("rest-forged", "grpc-forged"):
        (line,) = run.of(name)
        assert line["error_type"] == "NotFound"
        assert "unknown model" in line["error_message"]
        assert "forged" not in str(line.get("path"))
    (line,) = run.of('"]:\\{}')
    assert line["level"] == "INFO"
    assert line["message"] == "GET unknown 404"
    assert "path" not in line
    assert "no such path" in line["error_message"]


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/v2/models/test", "GET /v2/models/test 200"),
        ("GET", "/v2/models/test/versions/1/ready", "GET /v2/models/test/versions/1/ready 200"),
        ("GET", f"/v2/models/{SECRET}/ready", "GET /v2/models/{name}/ready 404"),
        ("POST", f"/v2/models/{SECRET}/versions/1/infer", "POST /v2/models/{name}/versions/{version}/infer 404"),
        ("POST", f"/v2/{SECRET}", "POST unknown 404"),
        (SECRET, "/v2", "_OTHER unknown 405"),
    ],
)
def test_path(method: str, path: str, message: str) -> None:
    """The log has the path only if it is known, otherwise the pattern of the route, and no method of the client's."""
    app = create_app(module=models.echo("FP32", [-1]))
    fields: list[tuple[str, dict[str, Any]]] = []
    app.extensions["service"].plane.observer_queue.observers[:] = [
        lambda contexts: fields.extend(each.log_fields() for each in contexts)
    ]
    app.test_client().open(path, method=method)
    ((found, own),) = fields
    assert found == message
    assert own.get("path", "unknown") == message.split()[1]
    assert own["http_status"] == int(message.split()[-1])


def test_request_data_is_not_logged(run: Run) -> None:
    """No line contains data of a request, valid or invalid."""
    assert SECRET not in run.log
    assert run.log.count("infer 400") >= 30


def test_health_checks_are_not_logged(run: Run) -> None:
    """Health checks are not logged, because they are frequent."""
    assert not run.of("probe")


def test_log_level_warning(client: Client) -> None:
    """With LOG_LEVEL=WARNING, only requests that fail because of the service are logged."""
    for protocol in BOTH:
        assert client.infer(protocol, "good", x_request_id="good")[0] in ("200", "OK")
        client.infer(protocol, "fail", x_request_id=f"{protocol}-fail")
    wait_for(lambda: client.service.log().count('"app.requests"') == 2)
    lines = parse(client.service.log(), "json")
    assert {each["level"] for each in lines} == {"ERROR"}
    assert {each["request_id"] for each in lines} == {"rest-fail", "grpc-fail"}


def test_last_requests_are_logged_at_shutdown() -> None:
    """Requests that are not yet logged when the service stops are logged during shutdown."""
    with gunicorn(ROOT, "tests.service.apps:silent()", WORKERS=1) as service:
        with grpc.insecure_channel(service.grpc) as channel:
            for protocol in BOTH:
                Client(service, channel).infer(protocol, x_request_id=f"{protocol}-last")
        assert "-last" not in service.log()
    assert all(service.last_words.count(f"[{protocol}-last]: ") == 1 for protocol in BOTH)


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "ü", "tab\there"])
def test_invalid_request_ids_are_replaced(client: Client, protocol: str, bad: str) -> None:
    """An invalid X-Request-Id is replaced by a generated id, as if it were absent."""
    if protocol == "grpc" and bad in ("ü", "tab\there"):
        bad = " "  # metadata cannot hold them
    ids = [client.infer(protocol, x_request_id=bad)[1], client.infer(protocol)[1]]
    assert all(re.fullmatch("[0-9a-f]{32}", each or "") for each in ids)
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("command", "environment", "text"),
    [
        (("gunicorn", "tests.service.apps:unloadable()"), {}, "load() failed. The service does not start"),
        (("gunicorn", "tests.service.apps:disagreeing()"), {}, "cannot start: tests/service/apps.py, line "),
        (("gunicorn", "app:create_app()"), {"HOST": "192.0.2.1"}, "cannot start: HOST=192.0.2.1"),
        (("gunicorn", "app:create_app()"), {"WORKERS": "two"}, "cannot start: WORKERS='two'"),
        (("grpc_service",), {"HOST": "192.0.2.1"}, "cannot start: GRPC_PORT="),
    ],
)
def test_failed_startup_uses_the_format(command: tuple[str, ...], environment: dict[str, str], text: str) -> None:
    """The error of a failed startup, and every line before it, use the configured format."""
    done = start(*command, LOG_FORMAT="JSON", **environment)
    assert done.returncode != 0
    lines = parse(done.stdout + done.stderr, "json")
    (told, *_) = (each for each in lines if each["message"].startswith(text))
    assert told["level"] in ("ERROR", "CRITICAL")
    assert ("stacktrace" in told) == ("load()" in text)


def test_grpc_service_uses_the_format() -> None:
    """`python -m grpc_service` logs in the same format, including its last request."""
    (port,) = free_ports(1)
    settings = {"HOST": "127.0.0.1", "GRPC_PORT": str(port), "SHUTDOWN_DELAY_SECONDS": "0", "LOG_FORMAT": "json"}
    command = [sys.executable, "-m", "grpc_service"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings}, stderr=subprocess.PIPE) as process:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(60)
                wait_for(lambda: Grpc(channel).call("ServerReady").ready)
                channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")(
                    b"", metadata=[("x-request-id", "last")], timeout=60
                )
        finally:
            process.send_signal(signal.SIGTERM)
        _, written = process.communicate(timeout=60)
    assert process.returncode == 0
    *others, last = parse(written.decode(), "json")
    assert any("is ready on" in each["message"] for each in others)
    assert (last["request_id"], last["message"]) == ("last", "gRPC ServerMetadata OK")


class Unsayable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize(
    ("message", "extra", "said"),
    [
        ("half a pair: \udcff", {}, "half a pair: "),
        ("many digits", {"n": 2**70, "\n": [2**70, "\udcff"]}, "many digits"),
        ("not a number", {"n": float("nan"), "o": object()}, "not a number"),
        (Unsayable(), {}, "a record of "),
        ("cannot be said", {"o": Unsayable()}, "a record of "),
        ("%s and %s", {}, "%s and %s"),
    ],
)
def test_any_record_is_one_line(log_format: str, message: Any, extra: dict[str, Any], said: str) -> None:
    """Every record, with any message and extra fields, is one line in the format."""
    record = logging.makeLogRecord({"name": "model", "msg": message, "levelname": "INFO", **extra})
    writer = log.LogHandler()
    writer.setFormatter(log.FORMATTERS[log_format]())
    (parsed,) = parse(writer.prepare(record), log_format)
    assert parsed["message"].startswith(said)


def test_batch_lines_name_all_requests() -> None:
    """A line that predict() logs for a batch has the ids of all its requests."""
    token = current_contexts.set((RequestContext("infer", "a"), RequestContext("infer", "b")))
    try:
        record = logging.makeLogRecord({"name": "model", "msg": "hello", "levelname": "INFO"})
        assert " INFO model [a,b]: hello" in log.TextFormatter().format(record)
    finally:
        current_contexts.reset(token)


def pair(kind: str) -> tuple[int, int]:
    """Return the file descriptors of the read end and the write end."""
    if kind == "pipe":
        return os.pipe()
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_blocked_log_does_not_block_the_service(kind: str) -> None:
    """If nothing reads the log, the service still handles requests, serves metrics and stops."""
    http_port, grpc_port = free_ports(2)
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http_port,
        "GRPC_PORT": grpc_port,
        "WORKERS": 1,
        "SHUTDOWN_DELAY_SECONDS": 0,
    }
    environment = {**os.environ, **{name: str(value) for name, value in settings.items()}, "LOG_FORMAT": "json"}
    command = [sys.executable, "-m", "gunicorn", "tests.service.apps:echoing()"]
    ours, theirs = pair(kind)
    with (
        open(ours, "rb", buffering=0) as reader,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=theirs) as process,
    ):
        os.close(theirs)
        service = Running(process, http_port, grpc_port, Path(os.devnull))
        try:
            wait_for(service.ready)
            with grpc.insecure_channel(service.grpc) as channel:
                for _ in range(1000):  # 300 KB of log, more than a pipe (64 KB) or a socket (200 KB) holds
                    assert Client(service, channel).infer("grpc")[0] == "OK"
            assert scrape(service)("inference_requests_total", operation="infer") == 1000
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        lines = parse(reader.readall().decode(), "json")
    assert 0 < sum(each["logger"] == "app.requests" for each in lines) < 1000


MANY = """
import logging
from app.observability import log
log.configure("json")
log.handler.start()
for number in range(%d):
    logging.getLogger("app").info("%%d", number, extra={"filling": "x" * 300})
print(flush=True)
input()
"""

LONG = """
import logging
from app.observability import log
log.configure("json")
print(flush=True)
logging.getLogger("app").info("x" * 1_000_000)
logging.getLogger("app").info("next")
"""


def read_log(kind: str, code: str, is_late: bool) -> list[str]:
    """Return the lines that `code` logs to a pipe or socket. A late reader begins after they are logged."""
    ours, theirs = pair(kind)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": theirs}
    with (
        open(ours, "rb", buffering=0) as reader,
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes) as process,
    ):
        os.close(theirs)
        if is_late:
            process.stdout.read(1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        return reader.readall().decode().splitlines()


def messages_of(lines: list[str]) -> list[str]:
    return [each["message"] for each in parse("\n".join([*lines, ""]), "json")]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_drops_lines_without_a_reader(kind: str) -> None:
    """Logging does not wait for a reader: lines that the queue has no room for are dropped, counted and reported."""
    messages = messages_of(read_log(kind, MANY % 20_000, is_late=True))
    dropped = [int(each.split()[0]) for each in messages if "log lines dropped" in each]
    assert sum(dropped) > 0
    assert sum(dropped) + len(messages) - len(dropped) == 20_000


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_keeps_all_lines_with_a_reader(kind: str) -> None:
    """A reader gets every line, in order, even if they are more than a pipe holds."""
    assert messages_of(read_log(kind, MANY % 3000, is_late=False)) == [str(number) for number in range(3000)]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_writes_long_lines_completely(kind: str) -> None:
    """A line that is longer than the reader takes at once is written completely."""
    assert messages_of(read_log(kind, LONG, is_late=True)) == ["x" * 1_000_000, "next"]


def test_blocked_log_does_not_block_metrics() -> None:
    """A blocked log does not delay metrics, and settle() returns even if requests keep arriving."""
    counted: list[RequestContext] = []
    written: list[RequestContext] = []
    may_write, is_over = threading.Event(), threading.Event()

    def write(contexts: list[RequestContext]) -> None:
        may_write.wait(60)
        written.extend(contexts)
        if not is_over.is_set():
            observer_queue.add(RequestContext("infer"))

    observer_queue = ObserverQueue()
    observer_queue.start(counted.extend, write)
    for _ in range(CHUNK + 1):
        observer_queue.add(RequestContext("infer"))
    wait_for(lambda: len(counted) == CHUNK + 1)
    assert not written
    may_write.set()
    observer_queue.wait_for_workers()  # Each write adds another context.
    is_over.set()
    assert len(written) > CHUNK
