"""The spans of infer calls: of the whole call, and in it of decode, queue, predict and encode.

Those that the model's own spans need as parents are there while predict() runs; the others are made of the call's times
when it has ended, beside the requests.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.batching import Answer
from app.call import INFER, Call, serving
from app.dataplane import DataPlane
from app.errors import InferenceError
from app.types import InferenceRequest
from app.version import __version__

SERVICE = "inference.GRPCInferenceService"
# A call that waited less did not wait.
QUEUE_SECONDS = 0.001
# A collector that is not there holds a worker's end up for so long.
SEND_SECONDS = 3.0
# gRPC's statuses in the order of their numbers, and those that are the server's fault by OpenTelemetry's conventions.
CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
FAULTS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}


def trace_calls(plane: DataPlane, exporters: list[str]) -> Callable[[], None]:
    """Hangs spans on `plane`, sent by `exporters`; returns what sends the last. ImportError where one is not there."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, trace.ProxyTracerProvider):  # predict.py, or who started us, has one already
        hang_spans(plane, provider.get_tracer("app", __version__))
        return lambda: None
    own = TracerProvider(resource=resource_of(plane), shutdown_on_exit=False)
    for name in exporters:
        found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
        if not found:
            raise ImportError(f"no exporter {name!r} is installed")
        own.add_span_processor(BatchSpanProcessor(found[0].load()()))
    trace.set_tracer_provider(own)
    hang_spans(plane, own.get_tracer("app", __version__))

    def end() -> None:
        sending = threading.Thread(target=own.shutdown, daemon=True)
        sending.start()
        sending.join(SEND_SECONDS)

    return end


def resource_of(plane: DataPlane) -> Resource:
    """The service's name is the model's, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES have one."""
    said = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if said else {"service.name": plane.metadata().name})


def hang_spans(plane: DataPlane, tracer: Tracer) -> None:
    spans = Spans(plane, tracer)
    plane.predict = spans.predict
    plane.journal.observers.insert(0, spans.finish)  # a line of the log has the trace's id then


class Spans:
    """Begins the spans of the calls of `plane` around its predict(), and ends them behind its journal."""

    def __init__(self, plane: DataPlane, tracer: Tracer):
        self.work, self.tracer = plane.predict, tracer
        metadata = plane.metadata()
        self.model = {"model.name": metadata.name, "model.version": metadata.version}
        self.propagator = TraceContextTextMapPropagator()

    def predict(self, model: Any, request: InferenceRequest) -> Answer:
        """The plane's own, in a span of the call that this thread serves; each call of a batch has one."""
        calls = serving.get()
        if not calls:
            return self.work(model, request)
        spans: list[Span] = []
        for call in calls:
            call.traced = call.traced or self.begin(call)
            links = [Link(spans[0].get_span_context())] if spans else None
            spans.append(self.tracer.start_span("predict", trace.set_span_in_context(call.traced), links=links))
        with ExitStack() as stack:
            for span in spans:
                stack.callback(span.end)
            stack.enter_context(trace.use_span(spans[0], record_exception=False, set_status_on_exception=False))
            try:
                return self.work(model, request)
            except Exception as error:
                for span in spans:
                    text = error.log_text() if isinstance(error, InferenceError) else str(error)
                    span.set_status(Status(StatusCode.ERROR, text))
                    span.set_attribute("error.type", type(error).__name__)
                raise

    def begin(self, call: Call) -> Span:
        """The span of the whole call, whose parent is what the client sent."""
        sent = {"traceparent": call.traceparent, "tracestate": call.tracestate}
        parent = self.propagator.extract({name: value for name, value in sent.items() if value})
        name, attributes = self.described(call)
        start = nanoseconds(call.begun)
        span = self.tracer.start_span(name, parent, SpanKind.SERVER, attributes, start_time=start)
        own = span.get_span_context()
        call.traceparent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
        return span

    def described(self, call: Call) -> tuple[str, dict[str, Any]]:
        """The name of its span and the attributes that it begins with, by OpenTelemetry's conventions."""
        attributes = {**self.model, "request.id": call.id}
        if call.protocol == "grpc":
            attributes |= {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": INFER}
            return f"{SERVICE}/{INFER}", attributes
        path: str = getattr(call, "path", "")
        version = "/versions/{version}" if "/versions/" in path else ""
        route = f"/v2/models/{{name}}{version}/infer"
        path = path.encode("latin-1").decode("utf-8", "replace")
        attributes |= {"http.request.method": "POST", "http.route": route, "url.path": path}
        return f"POST {route}", attributes

    def finish(self, calls: list[Call]) -> None:
        """The rest of what there is to say of calls that have ended."""
        for call in calls:
            if call.method == INFER:
                span, call.traced = call.traced or self.begin(call), None
                if span.is_recording():
                    self.parts(call, trace.set_span_in_context(span))
                    judge(span, call)
                span.end(nanoseconds(call.ended))

    def parts(self, call: Call, parent: Any) -> None:
        """The spans of what happened before predict() and behind it."""
        times = {"decode": (call.begun, call.decoded), "encode": (call.predicted, call.ended)}
        if call.started - call.decoded > QUEUE_SECONDS:
            times["queue"] = (call.decoded, call.started)
        for name, (start, end) in times.items():
            if start and end:
                self.tracer.start_span(name, parent, start_time=nanoseconds(start)).end(nanoseconds(end))


def judge(span: Span, call: Call) -> None:
    """The status of the call on its span; what the client did wrong is no error of a server's."""
    if call.protocol == "grpc":
        is_fault = call.status in FAULTS
        if call.status in CODES:
            span.set_attribute("rpc.grpc.status_code", CODES.index(call.status))
    else:
        is_fault = not call.status or call.status >= "500"
        if call.status:
            span.set_attribute("http.response.status_code", int(call.status))
    if is_fault:
        span.set_attribute("error.type", call.status)
        span.set_status(Status(StatusCode.ERROR, call.error or ""))


def nanoseconds(moment: float) -> int:
    """A time by time.monotonic() in nanoseconds of the epoch."""
    return int((moment + time.time() - time.monotonic()) * 1e9)
