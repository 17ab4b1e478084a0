"""The log as text and as JSON: its content, its format, and the data that it must not contain."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from app import create_app
from oip_conformance.frames import END_HEADERS, END_STREAM, Connection, Frame
from oip_conformance.wires import Grpc
from tests.kit import models
from tests.kit.log_lines import FORMATS, INFER, ROOT, Client, parse
from tests.kit.processes import Running, gunicorn, local_settings, started, wait_for
from tests.service.apps import FORGED

BOTH = ["rest", "grpc"]
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
SECRET = "Sesame-4711"
TIMES = ["decode_ms", "queue_ms", "predict_ms", "encode_ms", "duration_ms"]
LABELS = {"rest": "POST /v2/models/test/infer", "grpc": "gRPC ModelInfer"}
REST_FIELDS = {
    "http_method": "POST",
    "path": "/v2/models/test/infer",
    "client_address": "127.0.0.1",
}


class Run:
    """A service that receives the test's requests and stops. It keeps the responses and the whole log."""

    def __init__(self, log_format: str):
        self.results: dict[str, tuple[str, tuple[int, int]]] = {}
        # The last requests may be logged during shutdown.
        with (
            gunicorn(
                ROOT, "tests.service.apps:logging_echo()", LOG_FORMAT=log_format, WORKERS=2
            ) as service,
            grpc.insecure_channel(service.grpc_address) as channel,
        ):
            client = Client(service, channel)
            self.send_requests(client)
            self.send_many_requests(client)
        self.log = service.last_words
        self.lines = parse(self.log, log_format)

    def send_requests(self, client: Client) -> None:
        for protocol in BOTH:
            for value in ("good", "talk", "fail"):
                name = f"{protocol}-{value}"
                status, received_id, sizes = client.infer(
                    protocol, value, x_request_id=name, traceparent=TRACEPARENT
                )
                self.results[name] = status, sizes
                assert received_id == name
            client.infer(protocol, SECRET)
            client.infer(protocol, name=FORGED, x_request_id=f"{protocol}-forged")
            for method in ("ServerLive", "ServerReady"):
                client.call(f"/inference.GRPCInferenceService/{method}", b"", x_request_id="probe")
        for path in ("live", "ready"):
            assert client.post(f"/v2/health/{path}", None, "GET", x_request_id="probe")[:2] == (
                "200",
                "probe",
            )
        client.post("/" + quote(FORGED), None, "GET", x_request_id='"]:\\{}')
        for data in ([SECRET], [[SECRET], [1, SECRET]], {SECRET: SECRET}, SECRET):
            for datatype in ("BYTES", "FP32", SECRET):
                tensor = {"name": "x", "datatype": datatype, "shape": [1], "data": data}
                for body in (
                    {"inputs": [tensor]},
                    {"inputs": tensor},
                    {"inputs": data, "parameters": data},
                ):
                    client.post("/v2/models/test/infer", json.dumps(body).encode())
        with socket.create_connection(("127.0.0.1", client.service.http_port)) as connection:
            head = b"GET /v2 HTTP/1.1\r\nHost: x\r\n"
            connection.sendall(
                head + b"X-Request-Id: before\r\n\r\n" + head + b"No Header: 1\r\n\r\n"
            )
            while connection.recv(2**16):
                pass
        client.post("/v2/models/test/infer", SECRET.encode())
        client.call(INFER, SECRET.encode())

    def send_many_requests(self, client: Client) -> None:
        with ThreadPoolExecutor(8) as pool:
            for index in range(300):
                pool.submit(client.infer, BOTH[index % 2], x_request_id=f"many-{index}")

    def lines_of(self, request_id: str, logger: str = "app.requests") -> list[dict[str, Any]]:
        return [
            line
            for line in self.lines
            if line.get("request_id") == request_id and line["logger"] == logger
        ]


@pytest.fixture(scope="module", params=FORMATS)
def run(request: pytest.FixtureRequest) -> Run:
    return Run(request.param)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        gunicorn(
            ROOT,
            "tests.service.apps:logging_echo()",
            is_ready=Running.ready,  # the log message that a worker is ready is below WARNING
            LOG_LEVEL="WARNING",
            LOG_FORMAT="json",
        ) as service,
        grpc.insecure_channel(service.grpc_address) as channel,
    ):
        yield Client(service, channel)


@pytest.mark.parametrize("protocol", BOTH)
def test_each_request_has_one_line(run: Run, protocol: str) -> None:
    """A request has one line, at its level, with its id, trace, protocol, method, status, sizes and times."""
    for value, level in (("good", "INFO"), ("fail", "ERROR")):
        name = f"{protocol}-{value}"
        (line,) = run.lines_of(name)
        status, (received, sent) = run.results[name]
        assert line["message"] == f"{LABELS[protocol]} {status}"
        assert (line["level"], line["request_bytes"]) == (level, received)
        assert (line["trace_id"], line["span_id"]) == (TRACE, SPAN)
        assert value == "fail" or line["response_bytes"] == sent
        assert all(
            0 <= line[field] <= line["duration_ms"]
            for field in TIMES
            if value == "good" or field in line
        )
        if "pid" in line:
            assert (line["protocol"], line["operation"]) == (protocol, "infer")
            protocol_fields = (
                {**REST_FIELDS, "http_status": int(status)}
                if protocol == "rest"
                else {"grpc_status": status}
            )
            assert protocol_fields.items() <= line.items()
    assert line["error_type"] == "ModelError"
    assert "forged" in line["error_message"]


def test_no_line_is_lost_under_load(run: Run) -> None:
    """Under load and with two workers, each request has exactly one line, up to the last before shutdown."""
    names = [
        line["request_id"] for line in run.lines if line.get("request_id", "").startswith("many-")
    ]
    assert sorted(names) == sorted(f"many-{index}" for index in range(300))


def test_every_logger_uses_the_format(run: Run) -> None:
    """Lines of gunicorn, the service, warnings and unhandled exceptions of threads use the same format."""
    messages = {(line["logger"], line["message"]) for line in run.lines}
    for logger, said in [
        ("gunicorn.error", "Starting gunicorn "),
        ("gunicorn.error", "Handling signal: term"),
        ("gunicorn.error", "Shutting down: Master"),
        ("app.inference.model_runner", "Loaded the model in "),
        ("py.warnings", "UserWarning: "),
    ]:
        assert any(name == logger and said in message for name, message in messages), said
    (died, *_) = (line for line in run.lines if line["message"] == "Unhandled exception")
    assert "IndexError" in died["stacktrace"]
    if "pid" in died:
        assert died["error_type"] == "IndexError"
        assert died["error_message"].startswith("IndexError: ")


@pytest.mark.parametrize("protocol", BOTH)
def test_log_lines_of_predict_have_the_request_id(run: Run, protocol: str) -> None:
    """A line that predict() logs and its traceback have the request id, and a field from `extra` is kept."""
    talked, failed = run.lines_of(f"{protocol}-talk", "model")
    assert talked["message"].startswith("about \\n" if "pid" not in talked else "about \n")
    assert (talked["size"], talked["text"]) == (1, FORGED)
    assert failed["message"].startswith("Cannot write a record of ")
    assert "apps.py" in failed["message"]
    (raised,) = run.lines_of(f"{protocol}-fail", "app.inference.predict_adapter")
    assert (raised["level"], raised["message"]) == ("ERROR", "predict() raised an exception")
    assert "Traceback" in raised["stacktrace"]
    assert "ValueError" in raised["stacktrace"]


def test_rejected_request_has_no_id(run: Run) -> None:
    """The line about a malformed request has neither the id of the request before it nor anything that was sent."""
    (line,) = (line for line in run.lines if line["message"].startswith("Rejected a request"))
    assert "request_id" not in line
    assert line["message"] == "Rejected a request: 400. Malformed request: Invalid header token."


def test_newlines_are_escaped(run: Run) -> None:
    """A newline in a path, a model name or an error message is escaped and does not start a new line."""
    assert not [line for line in run.lines if line["message"].startswith("forged")]
    for name in ("rest-forged", "grpc-forged"):
        (line,) = run.lines_of(name)
        assert line["error_type"] == "NotFound"
        assert "Model not found" in line["error_message"]
        assert "forged" not in str(line.get("path"))
    (line,) = run.lines_of('"]:\\{}')
    assert line["level"] == "INFO"
    assert line["message"] == "GET unknown 404"
    assert "path" not in line
    assert "Path not found" in line["error_message"]


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/v2/models/test", "GET /v2/models/test 200"),
        ("GET", "/v2/models/test/versions/1/ready", "GET /v2/models/test/versions/1/ready 200"),
        ("GET", f"/v2/models/{SECRET}/ready", "GET /v2/models/{name}/ready 404"),
        (
            "POST",
            f"/v2/models/{SECRET}/versions/1/infer",
            "POST /v2/models/{name}/versions/{version}/infer 404",
        ),
        ("POST", f"/v2/{SECRET}", "POST unknown 404"),
        (SECRET, "/v2", "_OTHER unknown 405"),
    ],
)
def test_path(method: str, path: str, message: str) -> None:
    """The log has the path only if it is known, otherwise the pattern of the route, and no method of the client's."""
    app = create_app(module=models.echo("FP32", [-1]))
    fields: list[tuple[str, dict[str, Any]]] = []
    queue = app.extensions["service"].observer_queue
    queue.clear_observers()
    queue.add_observer(
        lambda calls: fields.extend((call.log_message(), call.log_fields()) for call in calls)
    )
    app.test_client().open(path, method=method)
    ((text, members),) = fields
    assert text == message
    assert members.get("path", "unknown") == message.split()[1]
    assert members["http_status"] == int(message.split()[-1])


def test_request_data_is_not_logged(run: Run) -> None:
    """No line contains data of a request, valid or invalid."""
    assert SECRET not in run.log
    assert run.log.count("infer 400") >= 30


def test_health_checks_are_not_logged(run: Run) -> None:
    """Health checks are not logged, because they are frequent."""
    assert not run.lines_of("probe")


COMMANDS = {"gunicorn": ["gunicorn", "app:create_app()"], "gRPC": ["grpc_service"]}
# Fields of gRPC calls that are not UTF-8.
INVALID_FIELDS = [
    (b"authorization", b"Bearer %s\xff" % SECRET.encode()),
    (b"x-request-id", b"\xff%s" % SECRET.encode()),
    (b"x-%s\xff" % SECRET.lower().encode(), b"a"),
]


def send_invalid_fields(address: str) -> None:
    """Start many calls with invalid fields, and wait until the last one has ended."""
    calls = INVALID_FIELDS * 30
    streams = range(1, 2 * len(calls), 2)
    with Connection(address) as connection:
        for stream, (name, value) in zip(streams, calls, strict=True):
            fields = [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/inference.GRPCInferenceService/ServerLive"),
                (b":authority", b"x"),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (name, value),
            ]
            head = b"".join(
                b"\0%c%s%c%s" % (len(name), name, len(value), value) for name, value in fields
            )
            connection.send(Frame.HEADERS, END_HEADERS, stream=stream, payload=head)
            connection.send(Frame.DATA, END_STREAM, stream=stream, payload=bytes(5))
        connection.end_of(streams[-1])


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_invalid_metadata_is_logged_once_per_minute(command: str, log_format: str) -> None:
    """Metadata that is not UTF-8 does not fill the log of grpcio, and no line contains it."""
    settings = local_settings(LOG_FORMAT=log_format, WORKERS=1)
    words = [sys.executable, "-m", *COMMANDS[command]]
    with started(words, ROOT, settings, lambda running: "ready" in running.log()) as service:
        send_invalid_fields(service.grpc_address)
        with service.own_channel() as channel:
            assert Grpc(channel).call("ServerLive").live

    assert SECRET.lower() not in service.last_words.lower()
    assert "Traceback" not in service.last_words
    # The startup message of gunicorn in text is not a record.
    records = [line for line in service.last_words.splitlines(True) if "cygrpc" in line]
    (record,) = parse("".join(records), log_format)
    assert (record["level"], record["logger"]) == ("WARNING", "grpc._cython.cygrpc")
    assert record["message"] == "A client sent metadata that is not UTF-8"


def test_log_level_warning(client: Client) -> None:
    """With LOG_LEVEL=WARNING, only requests that fail because of the service are logged."""
    for protocol in BOTH:
        assert client.infer(protocol, "good", x_request_id="good")[0] in ("200", "OK")
        client.infer(protocol, "fail", x_request_id=f"{protocol}-fail")
    wait_for(lambda: client.service.log().count('"app.requests"') == 2)
    lines = parse(client.service.log(), "json")
    assert {line["level"] for line in lines} == {"ERROR"}
    assert {line["request_id"] for line in lines} == {"rest-fail", "grpc-fail"}


def test_last_requests_are_logged_at_shutdown() -> None:
    """Requests that are not yet logged when the service stops are logged during shutdown."""
    with gunicorn(ROOT, "tests.service.apps:delayed_observers()", WORKERS=1) as service:
        with grpc.insecure_channel(service.grpc_address) as channel:
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
    assert all(re.fullmatch("[0-9a-f]{32}", request_id or "") for request_id in ids)
    assert ids[0] != ids[1]
