"""The spans that a collector receives by OTLP over HTTP from both protocols."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.kit.log_lines import INFER, Client
from tests.kit.processes import free_ports, gunicorn

ROOT = Path(__file__).parents[2]
BOTH = ["rest", "grpc"]
PARENT = "b7ad6b7169203331"
SECRET = "Sesame-4711"


class Collector(ThreadingHTTPServer):
    """An OTLP collector that keeps the received spans and resources."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.bodies = b""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies += body
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.resources.append(values(resource_spans.resource.attributes))
            for scope in resource_spans.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def values(attributes: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in attributes
    }


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def traceparent(trace: int, flags: str = "01") -> str:
    return f"00-{trace:032x}-{PARENT}-{flags}"


class Run:
    """Run a service from start to end. Each call has its own trace, numbered by its position in TRACES."""

    TRACES = tuple(
        f"{protocol}-{what}"
        for protocol in BOTH
        for what in ("good", "fail", "unknown", "bad", "unsampled")
    )

    def __init__(self, collector: Collector):
        self.collector = collector
        settings = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "LOG_FORMAT": "json",
            "MAX_CONCURRENCY": 1,
        }
        with (
            gunicorn(ROOT, "tests.template.traced:spanning()", WORKERS=1, **settings) as service,
            grpc.insecure_channel(service.grpc_address) as channel,
            ThreadPoolExecutor(8) as pool,
        ):
            client = Client(service, channel)
            for protocol in BOTH:
                self.send_requests(client, protocol)
                list(
                    pool.map(lambda _, protocol=protocol: client.infer(protocol, "slow"), range(8))
                )
            client.post("/own/good", None, "PUT", traceparent=traceparent(98))
            client.post("/v2/health/live", None, "GET", traceparent=traceparent(99))
            client.call(
                "/inference.GRPCInferenceService/ServerLive", b"", traceparent=traceparent(99)
            )
        self.lines = [json.loads(line) for line in service.last_words.splitlines()]

    def send_requests(self, client: Client, protocol: str) -> None:
        def headers(what: str, flags: str = "01") -> dict[str, str]:
            name = f"{protocol}-{what}"
            number = self.TRACES.index(name) + 1
            return {
                "traceparent": traceparent(number, flags),
                "tracestate": "vendor=1",
                "x_request_id": name,
            }

        client.infer(protocol, "good", **headers("good"))
        client.infer(protocol, "fail", **headers("fail"))
        client.infer(protocol, name="unknown", **headers("unknown"))
        client.infer(protocol, "good", **headers("unsampled", "00"))
        if protocol == "grpc":
            client.call(INFER, SECRET.encode(), **headers("bad"))
        else:
            tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [SECRET]}
            client.post(
                "/v2/models/test/infer", json.dumps({"inputs": [tensor]}).encode(), **headers("bad")
            )

    def spans_of(self, name: str) -> dict[str, Span]:
        """Return the spans of one trace by name."""
        trace = (self.TRACES.index(name) + 1).to_bytes(16, "big")
        spans = [span for span in self.collector.spans if span.trace_id == trace]
        assert len({span.name for span in spans}) == len(spans)
        return {span.name: span for span in spans}

    def line(self, name: str) -> dict[str, Any]:
        (line,) = (
            line
            for line in self.lines
            if line.get("request_id") == name and line["logger"] == "app.requests"
        )
        return line


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with collecting() as collector:
        yield Run(collector)


STAGES = [f"inference.{stage}_ms" for stage in ("decode", "queue", "predict", "encode")]
NAMES = {
    "rest": "POST /v2/models/{name}/infer",
    "grpc": "inference.GRPCInferenceService/ModelInfer",
}
ATTRIBUTES = {
    "rest": {
        "http.request.method": "POST",
        "http.route": "/v2/models/{name}/infer",
        "url.path": "/v2/models/test/infer",
        "http.response.status_code": 200,
    },
    "grpc": {
        "rpc.system.name": "grpc",
        "rpc.method": "inference.GRPCInferenceService/ModelInfer",
        "rpc.response.status_code": "OK",
    },
}


@pytest.mark.parametrize("protocol", BOTH)
def test_spans_of_a_call(run: Run, protocol: str) -> None:
    """A call has one span, whose parent is the client's span. The model's own spans are its children."""
    spans = run.spans_of(f"{protocol}-good")
    assert set(spans) == {NAMES[protocol], "own"}
    server = spans[NAMES[protocol]]
    assert server.kind == Span.SPAN_KIND_SERVER
    assert (server.parent_span_id.hex(), server.trace_state) == (PARENT, "vendor=1")
    model_attributes = {
        "inference.model.name": "test",
        "inference.model.version": "1",
        "inference.request.id": f"{protocol}-good",
    }
    expected = {**ATTRIBUTES[protocol], **model_attributes}
    attributes = values(server.attributes)
    assert {name: value for name, value in attributes.items() if name not in STAGES} == expected
    text = (ROOT / "docs/monitoring.md").read_text()
    assert {*re.findall(r"`(inference\.[\w.]+)`", text)} == {
        name for name in attributes if name.startswith("inference.")
    }
    assert server.status.code == Status.STATUS_CODE_UNSET
    assert spans["own"].parent_span_id == server.span_id


def test_span_of_an_own_route(run: Run) -> None:
    """A route of the owner that calls the model has a span with its own method, route and path."""
    spans = {
        span.name: span for span in run.collector.spans if span.trace_id == (98).to_bytes(16, "big")
    }
    assert spans.keys() == {"PUT /own/{word}", "own"}
    attributes = values(spans["PUT /own/{word}"].attributes)
    expected = {"http.request.method": "PUT", "http.route": "/own/{word}", "url.path": "/own/good"}
    assert expected.items() <= {**attributes}.items()
    assert attributes.keys() >= {*STAGES}


@pytest.mark.parametrize("protocol", BOTH)
def test_stage_times_add_up(run: Run, protocol: str) -> None:
    """The stage times are attributes of the call's span and add up to its duration."""
    spans = run.spans_of(f"{protocol}-good")
    server, own_span = spans[NAMES[protocol]], spans["own"]
    attributes = values(server.attributes)
    seconds = sum(attributes[name] for name in STAGES) / 1e3
    duration = (server.end_time_unix_nano - server.start_time_unix_nano) / 1e9
    assert seconds == pytest.approx(duration, abs=1e-3)  # the two clocks of a machine drift
    assert (own_span.end_time_unix_nano - own_span.start_time_unix_nano) / 1e6 <= attributes[
        "inference.predict_ms"
    ] + 1


@pytest.mark.parametrize("protocol", BOTH)
def test_log_contains_trace(run: Run, protocol: str) -> None:
    """The access log line has the trace and span of the request, and log lines of predict() have the trace."""
    for what in ("good", "fail", "unknown", "bad"):
        server = run.spans_of(f"{protocol}-{what}")[NAMES[protocol]]
        line = run.line(f"{protocol}-{what}")
        assert (line["trace_id"], line["span_id"]) == (server.trace_id.hex(), server.span_id.hex())
    (raised,) = (
        line
        for line in run.lines
        if line["message"] == "predict() raised an exception"
        and line["request_id"] == f"{protocol}-fail"
    )
    assert raised["trace_id"] == run.line(f"{protocol}-fail")["trace_id"]


@pytest.mark.parametrize("protocol", BOTH)
def test_span_of_a_failed_call(run: Run, protocol: str) -> None:
    """If predict() raises an exception, the span has an error status with its message."""
    span = run.spans_of(f"{protocol}-fail")[NAMES[protocol]]
    assert (span.status.code, span.status.message) == (
        Status.STATUS_CODE_ERROR,
        "ValueError: cannot work",
    )
    code = {
        "rest": ("http.response.status_code", 500),
        "grpc": ("rpc.response.status_code", "INTERNAL"),
    }[protocol]
    assert code in values(span.attributes).items()


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize(
    ("what", "rest", "code"), [("unknown", 404, "NOT_FOUND"), ("bad", 400, "INVALID_ARGUMENT")]
)
def test_span_of_a_rejected_call(run: Run, protocol: str, what: str, rest: int, code: str) -> None:
    """A request that is rejected before predict() has a span without an error status, because it is a client error."""
    (server,) = run.spans_of(f"{protocol}-{what}").values()
    assert server.parent_span_id.hex() == PARENT
    assert server.status.code == Status.STATUS_CODE_UNSET
    expected = {
        "rest": ("http.response.status_code", rest),
        "grpc": ("rpc.response.status_code", code),
    }[protocol]
    assert expected in values(server.attributes).items()


@pytest.mark.parametrize("protocol", BOTH)
def test_unsampled_call_has_no_span(run: Run, protocol: str) -> None:
    """If the client's sampled flag is off, no span is sent. The log still contains the trace."""
    assert not run.spans_of(f"{protocol}-unsampled")
    assert (
        run.line(f"{protocol}-unsampled")["trace_id"]
        == f"{run.TRACES.index(f'{protocol}-unsampled') + 1:032x}"
    )


def test_probes_and_payloads_are_not_traced(run: Run) -> None:
    """Health probes have no spans, and no span contains a payload."""
    assert not [span for span in run.collector.spans if span.trace_id == (99).to_bytes(16, "big")]
    assert SECRET.encode() not in run.collector.bodies
    assert {resource["service.name"] for resource in run.collector.resources} == {"test"}


def test_grpc_service_sends_spans() -> None:
    """`python -m grpc_service` sends its spans before it exits."""
    (port,) = free_ports(1)
    with collecting() as collector:
        settings = {
            "HOST": "127.0.0.1",
            "GRPC_PORT": port,
            "SHUTDOWN_DELAY_SECONDS": 0,
            "OTEL_SERVICE_NAME": "mine",
        }
        settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint
        environ = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        with subprocess.Popen(
            [sys.executable, "-m", "grpc_service"], cwd=ROOT, env=environ
        ) as process:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(60)
                with pytest.raises(grpc.RpcError):
                    channel.unary_unary(INFER)(b"", timeout=180)
            process.terminate()
            assert process.wait(60) == 0
    assert [span.name for span in collector.spans] == [NAMES["grpc"]]
    assert collector.resources[0]["service.name"] == "mine"


def test_unreachable_collector() -> None:
    """If the collector is unreachable, requests succeed and the service shuts down."""
    (port,) = free_ports(1)
    with (
        gunicorn(
            ROOT,
            "tests.template.traced:spanning()",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        ) as service,
        grpc.insecure_channel(service.grpc_address) as channel,
    ):
        assert Client(service, channel).infer("rest")[0] == "200"
        assert Client(service, channel).infer("grpc")[0] == "OK"
