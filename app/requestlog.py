"""The access log: a line for each call that has ended."""

from __future__ import annotations

import logging
import os
import time
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any

from app.call import Call
from app.logs import FORMATTERS, format_time, out

# Monitoring systems send these all the time.
PROBES = {"server_live", "server_ready", "model_ready", "metrics"}
# Levels by the status of both protocols. Any other status is INFO. An empty status means that nothing was sent.
LEVELS = {
    **dict.fromkeys(("500", "INTERNAL", "UNKNOWN", ""), ERROR),
    **dict.fromkeys(("503", "504", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"), WARNING),
}
# Lines that are written at once: not more than a pipe takes at once, so that lines of several workers do not mix.
GROUP = 8


class RequestLog:
    """An observer of the journal. Create it in the process that serves."""

    def __init__(self, log_format: str):
        self.logger, self.pid = logging.getLogger("app.requests"), os.getpid()
        self.is_json, self.format = log_format == "json", FORMATTERS[log_format]().format_fields

    def __call__(self, calls: list[Call]) -> None:
        to_epoch, lines = time.time() - time.monotonic(), []
        for call in calls:
            if self.logger.isEnabledFor(level := level_of(call)):
                moment = format_time(call.ended + to_epoch)
                lines.append(self.format(self.fields(call, moment, logging.getLevelName(level))) + "\n")
        for start in range(0, len(lines), GROUP):
            out.enqueue("".join(lines[start : start + GROUP]))

    def fields(self, call: Call, moment: str, level: str) -> dict[str, Any]:
        """Return the fields of the line, with sizes in bytes and times in milliseconds. JSON repeats the message's."""
        message = f"{call.protocol} {call.operation} {call.status}"
        fields: dict[str, Any] = {"ts": moment, "level": level, "logger": self.logger.name, "message": message}
        fields |= {"request_id": call.id, "received": call.received, "sent": call.sent}
        if self.is_json:
            fields.update(pid=self.pid, protocol=call.protocol, method=call.operation, status=call.status)
        seconds = {**call.stage_seconds(), "total": call.ended - call.begun}
        fields |= {f"{name}_ms": int(value * 1e6) / 1e3 for name, value in seconds.items()}
        parent = call.traceparent
        known = {"rows": call.rows, "traceparent": parent, "error": call.error, "trace_id": parent[3:35]}
        return fields | {name: value for name, value in known.items() if value}


def level_of(call: Call) -> int:
    if call.operation in PROBES:
        return DEBUG if call.status in ("200", "OK") else INFO
    return LEVELS.get(call.status, INFO)
