"""Traces, if OpenTelemetry's own variables name a collector and its packages are installed (the extra `tracing`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

logger = logging.getLogger(__name__)


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether there is a collector. The exporter reads its variables itself."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not is_off and any(environ.get(name, "").strip() for name in ENDPOINTS)


class Tracing:
    """Makes spans of infer calls after start(), which starts a thread, so that it is called after the fork."""

    _spans: Any = None

    def start(self, plane: Any) -> None:
        """Trace the calls of `plane` from now on, if traces are wanted. If that fails, log a warning."""
        if not is_wanted(os.environ):
            return
        try:
            from app.spans import Spans

            self._spans = Spans(plane.metadata())
            plane.journal.observers.insert(0, self._spans.observe)  # the access log contains the span's id
        except Exception as error:  # the service works without
            remedy = ". Install the packages: pip install -e '.[tracing]', or make lock EXTRAS=tracing for an image"
            logger.warning("No traces: %s%s", error, remedy if isinstance(error, ImportError) else "")

    def predict(self, predict: Callable[[Any, Any], Any], model: Any, request: Any) -> Any:
        """Return predict(model, request), which may make spans of its own in that of the call."""
        return self._spans.predict(predict, model, request) if self._spans else predict(model, request)

    def close(self) -> None:
        """Send the last spans."""
        if self._spans:
            self._spans.close()
