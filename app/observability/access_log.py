"""The access log: a line for each call that has ended."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from app.inference.context import RequestContext
from app.observability.log import FORMATTERS, format_time, handler

PROBES = {"server_live", "server_ready", "model_ready", "metrics"}  # monitoring systems send these all the time
# Levels by the status of both protocols. Any other status is INFO. An empty status means that nothing was sent.
LEVELS = dict.fromkeys(("500", "INTERNAL", "UNKNOWN", ""), logging.ERROR)
LEVELS |= dict.fromkeys(("503", "504", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"), logging.WARNING)
GROUP = 8  # lines that are written at once. A pipe takes them in one piece, so that lines of workers do not mix


class AccessLog:
    """An observer of the queue. Create it in the process that serves."""

    def __init__(self, log_format: str):
        self.logger, self.pid = logging.getLogger("app.requests"), os.getpid()
        self.is_json, self.format = log_format == "json", FORMATTERS[log_format]().format_fields

    def __call__(self, calls: list[RequestContext]) -> None:
        to_epoch, lines = time.time() - time.monotonic(), []
        for call in calls:
            if self.logger.isEnabledFor(level := level_of(call)):
                lines.append(self.format(self.fields(call, call.ended + to_epoch, level)) + "\n")
        for start in range(0, len(lines), GROUP):
            handler.enqueue("".join(lines[start : start + GROUP]))

    def fields(self, call: RequestContext, moment: float, level: int) -> dict[str, Any]:
        """Return the fields of the line, with sizes in bytes and times in milliseconds. JSON repeats the message's."""
        message, protocol = call.log_fields()
        fields: dict[str, Any] = {"timestamp": format_time(moment), "level": logging.getLevelName(level)}
        fields |= {"logger": self.logger.name, "message": message, "request_id": call.id}
        if parent := call.traceparent:
            fields |= {"trace_id": parent[3:35], "span_id": parent[36:52]}
        if self.is_json:
            fields |= {"pid": self.pid, "protocol": call.protocol, "operation": call.operation, **protocol}
        fields |= {"request_bytes": call.received, "response_bytes": call.sent}
        fields["duration_ms"] = int((call.ended - call.begun) * 1e6) / 1e3
        fields |= {f"{stage}_ms": int(seconds * 1e6) / 1e3 for stage, seconds in call.stage_seconds().items()}
        if call.rows:
            fields["batch_size"] = call.rows
        if call.failure:
            fields |= {"error_type": call.failure.__name__, "error_message": call.error}
        return fields


def level_of(call: RequestContext) -> int:
    if call.operation in PROBES:
        return logging.DEBUG if call.status in ("200", "OK") else logging.INFO
    return LEVELS.get(call.status, logging.INFO)
