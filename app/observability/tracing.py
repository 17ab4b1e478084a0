"""Optional tracing.

It needs the packages of the extra `tracing`, and OTEL_* variables that name a collector.
"""

import logging
import os
from typing import Any

from app.protocol.metadata import ModelMetadata

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

logger = logging.getLogger(__name__)


def make_spans(model: ModelMetadata) -> Any:
    """Return Spans for a model, or None if tracing is off or cannot start.

    Log a warning if it cannot start.
    """
    if not _is_enabled():
        return None
    try:
        from app.observability.spans import Spans

        return Spans(model)
    except Exception as error:  # tracing is optional
        remedy = ""
        if isinstance(error, ImportError):
            command = "pip install -e '.[tracing]', or make lock EXTRAS=tracing for an image"
            remedy = f". Install the packages: {command}"
        logger.warning("Tracing is disabled: %s%s", error, remedy)
        return None


def _is_enabled() -> bool:
    """Return True if the environment names a collector, and does not disable OpenTelemetry."""
    environment = os.environ
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(environment.get(name, "").strip() for name in ENDPOINTS)
