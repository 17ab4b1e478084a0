"""Access log: one line per completed call."""

import logging
import os
import time
from typing import Any

from app.inference.call import Call
from app.observability.log import FORMATTERS, format_time, handler, trace_fields

# Operations that monitoring systems call often.
PROBES = {"server_live", "server_ready", "model_ready", "metrics"}
# Log levels by HTTP or gRPC status. The default is INFO. "" means that no response was sent.
LEVELS = {
    "500": logging.ERROR,
    "INTERNAL": logging.ERROR,
    "UNKNOWN": logging.ERROR,
    "": logging.ERROR,
    "503": logging.WARNING,
    "504": logging.WARNING,
    "UNAVAILABLE": logging.WARNING,
    "RESOURCE_EXHAUSTED": logging.WARNING,
    "DEADLINE_EXCEEDED": logging.WARNING,
}
# Lines per write: few enough for an atomic write to a pipe, so that lines of workers do not mix.
LINES_PER_WRITE = 8


class AccessLog:
    """Observer that writes the access log. Create it after the fork: it reads the process id."""

    def __init__(self, log_format: str):
        self._logger = logging.getLogger("app.requests")
        self._pid = os.getpid()
        self._is_json = log_format == "json"
        self._format_fields = FORMATTERS[log_format]().format_fields

    def __call__(self, calls: list[Call]) -> None:
        epoch = time.time() - time.monotonic()
        lines = []
        for call in calls:
            level = level_of(call)
            if self._logger.isEnabledFor(level):
                fields = self._fields(call, call.timings.ended + epoch, level)
                lines.append(self._format_fields(fields) + "\n")
        for start in range(0, len(lines), LINES_PER_WRITE):
            handler.enqueue("".join(lines[start : start + LINES_PER_WRITE]))

    def _fields(self, call: Call, end: float, level: int) -> dict[str, Any]:
        """Return the fields of a line, in their order. `end` is in seconds since the epoch.

        JSON also has the parts of the message as fields.
        """
        fields: dict[str, Any] = {
            "timestamp": format_time(end),
            "level": logging.getLevelName(level),
            "logger": self._logger.name,
            "message": call.log_message(),
            "request_id": call.id,
            **trace_fields(call),
        }
        if self._is_json:
            fields["pid"] = self._pid
            fields["protocol"] = call.protocol
            fields["operation"] = call.operation
            fields |= call.log_fields()
        fields["request_bytes"] = call.outcome.request_bytes
        fields["response_bytes"] = call.outcome.response_bytes
        fields["duration_ms"] = _milliseconds(call.timings.total_seconds)
        for stage, seconds in call.timings.stage_seconds().items():
            fields[f"{stage}_ms"] = _milliseconds(seconds)
        if call.share is not None:
            fields["batch_size"] = call.share.batch_rows
        if call.outcome.error_class is not None:
            fields["error_type"] = call.outcome.error_class.__name__
            fields["error_message"] = call.outcome.error_text
        return fields


def level_of(call: Call) -> int:
    """Return the log level of a completed call."""
    if call.operation in PROBES:
        return logging.DEBUG if call.outcome.status in ("200", "OK") else logging.INFO
    return LEVELS.get(call.outcome.status, logging.INFO)


def _milliseconds(seconds: float) -> float:
    """Return milliseconds with three decimal places. Rounding down is faster than round()."""
    return int(seconds * 1e6) / 1e3
