"""Traces, if OpenTelemetry's own variables ask for them and its packages are installed (the extra `tracing`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

# The exporter's name in OpenTelemetry's packages, by the protocol of OTLP.
BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

logger = logging.getLogger(__name__)


def exporters_wanted(environ: Mapping[str, str]) -> list[str]:
    """Return the names under which OpenTelemetry's packages register the exporters."""

    def otlp(name: str) -> str:
        values = (environ.get(f"OTEL_EXPORTER_OTLP_{each}", "").strip() for each in (f"TRACES_{name}", name))
        return next(filter(None, values), "")

    named = environ.get("OTEL_TRACES_EXPORTER", "").strip() or ("otlp" if otlp("ENDPOINT") else "none")
    if named == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    protocol = otlp("PROTOCOL") or "http/protobuf"
    by_name = {"otlp": BY_PROTOCOL.get(protocol, f"otlp, {protocol}")}
    return [by_name.get(each.strip(), each.strip()) for each in named.split(",")]


class Tracing:
    """Makes spans of infer calls after start(), which starts a thread, so that it is called after the fork."""

    def __init__(self) -> None:
        self._spans: Any = None

    def start(self, plane: Any) -> None:
        """Trace the calls of `plane` from now on, if traces are wanted. If that fails, log a warning."""
        try:
            if names := exporters_wanted(os.environ):
                from app.spans import Spans

                self._spans = Spans(plane.metadata(), names)
                plane.journal.observers.insert(0, self._spans.observe)  # the access log contains the span's id
        except ImportError as error:
            remedy = "pip install -e '.[tracing]', or make lock EXTRAS=tracing for an image"
            logger.warning("No traces: %s. Install the packages: %s", error, remedy)
        except Exception as error:  # the service works without
            logger.warning("No traces: %s: %s", type(error).__name__, error)

    def predict(self, predict: Callable[[Any, Any], Any], model: Any, request: Any) -> Any:
        """Return predict(model, request), called in a span."""
        return self._spans.predict(predict, model, request) if self._spans else predict(model, request)

    def close(self) -> None:
        """Send the last spans."""
        if self._spans:
            self._spans.close()
