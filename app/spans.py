"""The spans of infer calls: of the whole call, and in it of decode, queue, predict and encode.

Spans that the model's own spans need as parents exist while predict() runs. The others are made when the call has
ended.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.call import INFER, Call, serving
from app.errors import InferenceError
from app.types import InferenceRequest, ModelMetadata
from app.version import __version__

SERVICE = "inference.GRPCInferenceService"
# A shorter wait in the queue gets no span.
QUEUE_SECONDS = 0.001
# Limit of the wait for a collector when the service stops.
SEND_SECONDS = 3.0
# gRPC's statuses that are errors of the server by OpenTelemetry's conventions.
FAULTS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}


def create_provider(service: str, exporters: list[str]) -> TracerProvider:
    """Create OpenTelemetry's provider for `service`. Raise ImportError if an exporter is not installed."""
    is_named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if is_named else {"service.name": service})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in exporters:
        found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
        if not found:
            raise ImportError(f"no exporter {name!r} is installed")
        provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    return provider


class Spans:
    """Starts spans around predict(), and ends them as an observer of the journal."""

    def __init__(self, model: ModelMetadata, exporters: list[str]):
        provider, self._own = trace.get_tracer_provider(), None
        if isinstance(provider, trace.ProxyTracerProvider):  # otherwise predict.py or a launcher has set one
            provider = self._own = create_provider(model.name, exporters)
            trace.set_tracer_provider(provider)
        self.tracer = provider.get_tracer("app", __version__)
        self.model = {"model.name": model.name, "model.version": model.version}

    def close(self) -> None:
        """Send the last spans."""
        if self._own:
            sending = threading.Thread(target=self._own.shutdown, daemon=True)
            sending.start()
            sending.join(SEND_SECONDS)

    def predict(self, predict: Callable[[Any, Any], Any], model: Any, request: InferenceRequest) -> Any:
        """Call predict() in a span of the call that this thread serves. Each call of a batch gets one."""
        spans: list[Span] = []
        for call in serving.get():
            call.traced = call.traced or self.begin(call)
            links = [Link(spans[0].get_span_context())] if spans else None
            spans.append(self.tracer.start_span("predict", trace.set_span_in_context(call.traced), links=links))
        current = spans[0] if spans else trace.get_current_span()
        try:
            with trace.use_span(current, record_exception=False, set_status_on_exception=False):
                return predict(model, request)
        except Exception as error:
            text = error.log_text() if isinstance(error, InferenceError) else str(error)
            for span in spans:
                set_error(span, type(error).__name__, text)
            raise
        finally:
            for span in spans:
                span.end()

    def begin(self, call: Call) -> Span:
        """Start the span of the whole call. Its parent is the client's."""
        sent = {"traceparent": call.traceparent, "tracestate": call.tracestate}
        parent = TraceContextTextMapPropagator().extract({name: value for name, value in sent.items() if value})
        if call.protocol == "grpc":
            name = f"{SERVICE}/{INFER}"
            attributes = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": INFER}
        else:
            path = getattr(call, "path", "").encode("latin-1").decode("utf-8", "replace")
            version = "/versions/{version}" if "/versions/" in path else ""
            route = f"/v2/models/{{name}}{version}/infer"
            name = f"POST {route}"
            attributes = {"http.request.method": "POST", "http.route": route, "url.path": path}
        attributes |= {**self.model, "request.id": call.id}
        span = self.tracer.start_span(name, parent, SpanKind.SERVER, attributes, start_time=nanoseconds(call.begun))
        own = span.get_span_context()
        call.traceparent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
        return span

    def observe(self, calls: list[Call]) -> None:
        """End the spans of calls that have ended, with spans of the steps around predict()."""
        for call in calls:
            if call.method == INFER:
                span, call.traced = call.traced or self.begin(call), None
                parent = trace.set_span_in_context(span)
                steps = [("decode", call.begun, call.decoded), ("encode", call.predicted, call.ended)]
                if call.started - call.decoded > QUEUE_SECONDS:
                    steps.append(("queue", call.decoded, call.started))
                for name, start, end in steps if span.is_recording() else ():
                    if start and end:
                        self.tracer.start_span(name, parent, start_time=nanoseconds(start)).end(nanoseconds(end))
                set_status(span, call)
                span.end(nanoseconds(call.ended))


def set_status(span: Span, call: Call) -> None:
    """Set the status of the call on its span. An error of the client is no error of a server's span."""
    if call.protocol == "grpc":
        is_fault = call.status in FAULTS
        span.set_attribute("rpc.response.status_code", call.status)
    else:
        is_fault = not call.status or call.status >= "500"
        if call.status:
            span.set_attribute("http.response.status_code", int(call.status))
    if is_fault:
        set_error(span, call.status, call.error or "")


def set_error(span: Span, kind: str, text: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, text))


def nanoseconds(moment: float) -> int:
    """Convert a time of time.monotonic() to nanoseconds since the epoch."""
    return int((moment + time.time() - time.monotonic()) * 1e9)
