"""Optional tracing. It needs the packages of the extra `tracing` and OTEL_* variables that name a collector."""

import logging
import os
from typing import Any

from app.protocol.metadata import ModelMetadata

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

logger = logging.getLogger(__name__)


def make_spans(model: ModelMetadata) -> Any:
    """Return Spans for a model, or None if tracing is off or cannot start. Log a warning if it cannot start."""
    get = os.environ.get
    is_off = get("OTEL_SDK_DISABLED", "").lower() == "true" or get("OTEL_TRACES_EXPORTER") == "none"
    if is_off or not any(get(name, "").strip() for name in ENDPOINTS):
        return None
    try:
        from app.observability.spans import Spans

        return Spans(model)
    except Exception as error:  # tracing is optional
        remedy = ". Install the packages: pip install -e '.[tracing]', or make lock EXTRAS=tracing for an image"
        logger.warning(
            "Tracing is disabled: %s%s", error, remedy if isinstance(error, ImportError) else ""
        )
        return None
