"""Access log: one line per completed request."""

import logging
import os
import time
from typing import Any

from app.inference.request_context import RequestContext
from app.observability.log import FORMATTERS, format_time, handler, trace_fields

PROBES = {
    "server_live",
    "server_ready",
    "model_ready",
    "metrics",
}  # frequent requests of monitoring systems
# Log levels by HTTP or gRPC status. The default is INFO. An empty status means that no response was sent.
LEVELS = dict.fromkeys(("500", "INTERNAL", "UNKNOWN", ""), logging.ERROR)
LEVELS |= dict.fromkeys(
    ("503", "504", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"), logging.WARNING
)
GROUP = 8  # lines per write: few enough for an atomic write to a pipe, so that lines of workers do not mix


class AccessLog:
    """Observer that writes the access log. Create it after the fork, because it reads the process id."""

    def __init__(self, log_format: str):
        self.logger, self.pid = logging.getLogger("app.requests"), os.getpid()
        self.is_json, self.format = log_format == "json", FORMATTERS[log_format]().format_fields

    def __call__(self, contexts: list[RequestContext]) -> None:
        to_epoch, lines = time.time() - time.monotonic(), []
        for context in contexts:
            if self.logger.isEnabledFor(level := level_of(context)):
                lines.append(
                    self.format(self.fields(context, context.ended + to_epoch, level)) + "\n"
                )
        for start in range(0, len(lines), GROUP):
            handler.enqueue("".join(lines[start : start + GROUP]))

    def fields(self, context: RequestContext, moment: float, level: int) -> dict[str, Any]:
        """Return the fields of a line. JSON also has the parts of the message as fields."""
        message, protocol = context.log_fields()
        fields: dict[str, Any] = {
            "timestamp": format_time(moment),
            "level": logging.getLevelName(level),
        }
        fields |= {
            "logger": self.logger.name,
            "message": message,
            "request_id": context.id,
            **trace_fields(context),
        }
        if self.is_json:
            fields |= {
                "pid": self.pid,
                "protocol": context.protocol,
                "operation": context.operation,
                **protocol,
            }
        fields |= {"request_bytes": context.received, "response_bytes": context.sent}
        fields["duration_ms"] = int((context.ended - context.begun) * 1e6) / 1e3
        fields |= {
            f"{stage}_ms": int(seconds * 1e6) / 1e3
            for stage, seconds in context.stage_seconds().items()
        }
        if context.batch_rows:
            fields["batch_size"] = context.batch_rows
        if context.failure:
            fields |= {"error_type": context.failure.__name__, "error_message": context.error}
        return fields


def level_of(context: RequestContext) -> int:
    if context.operation in PROBES:
        return logging.DEBUG if context.status in ("200", "OK") else logging.INFO
    return LEVELS.get(context.status, logging.INFO)
