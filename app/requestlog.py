"""The access log: a line for each call that has ended."""

from __future__ import annotations

import json
import logging
import os
import time
from itertools import pairwise
from logging import DEBUG, ERROR, INFO, WARNING

from app.call import Call
from app.logs import escape, format_time, out

# Monitoring systems send these all the time.
PROBES = {"ServerLive", "ServerReady", "ModelReady", "Metrics"}
STAGES = ("decode", "queue", "predict", "encode")
SUCCESS = {"200", "OK"}
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
        self.is_json, self.field = (True, ',"%s":%s') if log_format == "json" else (False, " %s=%s")
        self.sizes = self.field % ("received", "%d") + self.field % ("sent", "%d")
        self.times = "".join(self.field % (f"{stage}_ms", "%.3f") for stage in ("decode", "queue", "predict", "encode"))
        self.total = self.field % ("total_ms", "%.3f")
        self.logger, self.pid = logging.getLogger("app.requests"), os.getpid()

    def __call__(self, calls: list[Call]) -> None:
        least, to_epoch = self.logger.getEffectiveLevel(), time.time() - time.monotonic()
        lines = []
        for call in calls:
            if (level := level_of(call)) >= least:
                lines.append(self.format(call, logging.getLevelName(level), format_time(call.ended + to_epoch)) + "\n")
        for start in range(0, len(lines), GROUP):
            out.write("".join(lines[start : start + GROUP]))

    def format(self, call: Call, level: str, moment: str) -> str:
        """Return the line, with sizes in bytes and times in milliseconds. JSON repeats the message's parts."""
        begun, ended, fields = call.begun * 1e3, call.ended * 1e3, self.sizes % (call.received, call.sent)
        if call.predicted:
            decoded, started, predicted = call.decoded * 1e3, call.started * 1e3, call.predicted * 1e3
            fields += self.times % (decoded - begun, started - decoded, predicted - started, ended - predicted)
        fields += self.total % (ended - begun)
        for name in ("rows", "traceparent", "error"):
            if value := getattr(call, name):
                fields += self.field % (name, json.dumps(value))
        message = f"{call.protocol} {call.method} {call.status}"
        if not self.is_json:
            return escape(f"{moment} {level} app.requests [{call.id}]: {message}{fields}")
        trace = f',"trace_id":"{call.traceparent[3:35]}"' if call.traceparent else ""
        return (
            f'{{"ts":"{moment}","level":"{level}","logger":"app.requests","message":"{message}",'
            f'"request_id":{json.dumps(call.id)},"protocol":"{call.protocol}","method":"{call.method}",'
            f'"status":"{call.status}","pid":{self.pid}{fields}{trace}}}'
        )


def stage_seconds(call: Call) -> dict[str, float]:
    """Return the duration of each stage that the call has come to the end of, by the stage's name."""
    encoded = 0.0 if call.error else call.ended
    times = (call.begun, call.decoded, call.started, call.predicted, encoded)
    return {stage: end - start for stage, (start, end) in zip(STAGES, pairwise(times), strict=True) if start and end}


def level_of(call: Call) -> int:
    if call.method in PROBES:
        return DEBUG if call.status in SUCCESS else INFO
    return LEVELS.get(call.status, INFO)
