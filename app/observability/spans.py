"""OpenTelemetry spans of infer requests, with stage durations as attributes. Spans of predict() are their children."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.inference.request_context import INFER, RequestContext, current_contexts
from app.observability.access_log import level_of
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import ModelMetadata
from app.version import __version__


class Spans:
    """Creates the spans of a model's requests. observe() is an observer of the queue. OTEL_* variables configure it."""

    def __init__(self, model: ModelMetadata):
        provider, self._own = trace.get_tracer_provider(), None
        if isinstance(
            provider, trace.ProxyTracerProvider
        ):  # otherwise, predict.py or a launcher has set one
            resource = Resource.create({"service.name": model.name}).merge(
                OTELResourceDetector().detect()
            )
            provider = self._own = TracerProvider(resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            trace.set_tracer_provider(provider)
        self.tracer = provider.get_tracer("app", __version__)
        self.model = {"inference.model.name": model.name, "inference.model.version": model.version}

    def close(self) -> None:
        """Send the last spans. Wait at most three seconds for the collector."""
        if self._own:
            sending = threading.Thread(target=self._own.shutdown, daemon=True)
            sending.start()
            sending.join(3)

    def predict(
        self, predict: Callable[[Any, Any], Any], model: Any, request: InferenceRequest
    ) -> Any:
        """Call predict() in the span of the current request. In a batch, use the span of the first request."""
        contexts = current_contexts.get()
        for context in contexts:
            context.traced = context.traced or self.start_span(context)
        with trace.use_span(
            contexts[0].traced, record_exception=False, set_status_on_exception=False
        ):
            return predict(model, request)

    def start_span(self, context: RequestContext) -> trace.Span:
        """Start the span of a request, as a child of the client's span."""
        sent = {"traceparent": context.traceparent, "tracestate": context.tracestate}
        parent = TraceContextTextMapPropagator().extract(sent)
        name, attributes = context.span()
        attributes |= {**self.model, "inference.request.id": context.id}
        begun = epoch_ns(context.begun)
        span = self.tracer.start_span(
            name, parent, trace.SpanKind.SERVER, attributes, start_time=begun
        )
        own = span.get_span_context()
        context.traceparent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
        return span

    def observe(self, contexts: list[RequestContext]) -> None:
        """Add the stage durations to the spans and end them. Only server errors set the status of a span to ERROR."""
        for context in (each for each in contexts if each.operation == INFER):
            span, context.traced = context.traced or self.start_span(context), None
            times = {
                f"inference.{stage}_ms": seconds * 1e3
                for stage, seconds in context.stage_seconds().items()
            }
            span.set_attributes(context.span()[1] | times)
            if level_of(context) > logging.INFO:
                span.set_attribute("error.type", context.status)
                span.set_status(trace.Status(trace.StatusCode.ERROR, context.error or ""))
            span.end(epoch_ns(context.ended))


def epoch_ns(moment: float) -> int:
    """Convert a value of time.monotonic() to nanoseconds since the epoch."""
    return int((moment + time.time() - time.monotonic()) * 1e9)
