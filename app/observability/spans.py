"""OpenTelemetry spans of infer requests, with stage durations as attributes.

Spans that predict() creates are their children.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.inference.call import INFER, Call
from app.observability.access_log import level_of
from app.protocol.metadata import ModelMetadata
from app.version import __version__

CLOSE_SECONDS = 3


class Spans:
    """The spans of a model's calls. observe() is an observer of the queue.

    OTEL_* variables configure it.
    """

    def __init__(self, model: ModelMetadata):
        provider = trace.get_tracer_provider()
        self._provider: TracerProvider | None = None  # one that this object has to shut down
        # Otherwise, predict.py or a launcher has set a provider.
        if isinstance(provider, trace.ProxyTracerProvider):
            self._provider = _create_provider(service_name=model.name)
            trace.set_tracer_provider(self._provider)
            provider = self._provider
        self._tracer = provider.get_tracer("app", __version__)
        self._model_attributes = {
            "inference.model.name": model.name,
            "inference.model.version": model.version,
        }

    def close(self) -> None:
        """Send the last spans. Wait at most CLOSE_SECONDS for the collector."""
        if self._provider is not None:
            sending = threading.Thread(target=self._provider.shutdown, daemon=True)
            sending.start()
            sending.join(CLOSE_SECONDS)

    @contextmanager
    def predict_span(self, calls: tuple[Call, ...]) -> Iterator[None]:
        """Make the span of the first call the current one. Start the spans of all calls."""
        for call in calls:
            if call.trace.span is None:
                self._start_span(call)
        with trace.use_span(
            calls[0].trace.span, record_exception=False, set_status_on_exception=False
        ):
            yield

    def observe(self, calls: list[Call]) -> None:
        """Add the stage durations to the spans of infer calls, and end the spans.

        Only server errors set the status of a span to ERROR.
        """
        for call in calls:
            if call.operation == INFER:
                self._end_span(call)

    def _start_span(self, call: Call) -> None:
        """Start the span of a call, as a child of the client's span."""
        headers = {"traceparent": call.trace.traceparent, "tracestate": call.trace.tracestate}
        client_context = TraceContextTextMapPropagator().extract(headers)
        attributes = {
            **call.span_attributes(),
            **self._model_attributes,
            "inference.request.id": call.id,
        }
        span = self._tracer.start_span(
            call.span_name(),
            context=client_context,
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            start_time=epoch_ns(call.timings.begun),
        )
        call.enter_span(span, traceparent=traceparent_of(span))

    def _end_span(self, call: Call) -> None:
        if call.trace.span is None:  # the call was rejected before predict()
            self._start_span(call)
        span = call.trace.span
        for stage, seconds in call.timings.stage_seconds().items():
            span.set_attribute(f"inference.{stage}_ms", seconds * 1e3)
        span.set_attributes(call.span_attributes())
        if level_of(call) > logging.INFO:
            span.set_attribute("error.type", call.outcome.status)
            span.set_status(trace.Status(trace.StatusCode.ERROR, call.outcome.error_text or ""))
        span.end(epoch_ns(call.timings.ended))


def traceparent_of(span: trace.Span) -> str:
    """Return the header traceparent for requests that predict() sends within the span."""
    context = span.get_span_context()
    trace_id = f"{context.trace_id:032x}"
    span_id = f"{context.span_id:016x}"
    return f"00-{trace_id}-{span_id}-{context.trace_flags:02x}"


def _create_provider(service_name: str) -> TracerProvider:
    """Return a provider that sends spans to the collector of the OTEL_* variables."""
    resource = Resource.create({"service.name": service_name})
    resource = resource.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def epoch_ns(moment: float) -> int:
    """Convert a value of time.monotonic() to nanoseconds since the epoch."""
    return int((moment + time.time() - time.monotonic()) * 1e9)
