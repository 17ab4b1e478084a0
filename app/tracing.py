"""Whether there are traces: where OpenTelemetry's own variables ask for them, and its packages are there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

from app.dataplane import DataPlane

OTLP = "otlp"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
# How OTLP is spoken, in the order in which the variables count; HTTP needs nothing more than the extra.
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

logger = logging.getLogger(__name__)


def exporters_wanted(environ: Mapping[str, str]) -> list[str]:
    """The names of the exporters, as OpenTelemetry's packages register them; none where no traces are asked for."""

    def first(variables: tuple[str, ...]) -> str:
        return next((environ[each].strip() for each in variables if environ.get(each, "").strip()), "")

    named = first(("OTEL_TRACES_EXPORTER",)) or (OTLP if first(ENDPOINTS) else "none")
    if named == "none" or first(("OTEL_SDK_DISABLED",)).lower() == "true":
        return []
    spoken = first(PROTOCOLS) or "http/protobuf"
    names = [each.strip() for each in named.split(",")]
    return [BY_PROTOCOL.get(spoken, f"{OTLP}, {spoken}") if each == OTLP else each for each in names]


def start_tracing(plane: DataPlane) -> Callable[[], None]:
    """Traces the calls of `plane` from now on, where that is asked for; returns what sends the last spans.

    To be called in the process that serves, as it starts a thread. Where tracing cannot be, a warning says so.
    """
    try:
        if names := exporters_wanted(os.environ):
            from app.spans import trace_calls

            return trace_calls(plane, names)
    except ImportError as error:
        logger.warning(
            "there will be no traces: %s; pip install -e '.[tracing]', or make lock EXTRAS=tracing for an image", error
        )
    except Exception as error:  # the service goes on without
        logger.warning("there will be no traces: %s: %s", type(error).__name__, error)
    return lambda: None
