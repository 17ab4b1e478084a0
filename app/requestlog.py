"""A line for each call that ended."""

from __future__ import annotations

import logging
import os
import select
import time
from itertools import pairwise
from logging import DEBUG, ERROR, INFO, WARNING

from app.call import INFER, Call
from app.logs import FORMS, Fields, out, stamp

# Asked for all the time, by machines.
PROBES = {"ServerLive", "ServerReady", "ModelReady", "Metrics"}
SUCCESS = {"200", "OK"}
# By the status of either protocol; what is not here was the client's doing, or well. No status: nothing was answered.
LEVELS = {
    **dict.fromkeys(("500", "INTERNAL", "UNKNOWN", ""), ERROR),
    **dict.fromkeys(("503", "504", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"), WARNING),
}
# A pipe takes so much in one piece, without what other processes write between.
PIECE = getattr(select, "PIPE_BUF", 512)
LOGGER = "app.requests"
TIMES = ("decode_ms", "queue_ms", "predict_ms", "encode_ms", "total_ms")
# The line of a plain call; all but what each has of its own is filled in once for a protocol.
PLAIN = {
    "text": "%s INFO {logger} [%s]: {message} received=%d sent=%d "
    "decode_ms=%.3f queue_ms=%.3f predict_ms=%.3f encode_ms=%.3f total_ms=%.3f\n",
    "json": '{{"ts":"%s","level":"INFO","logger":"{logger}","message":"{message}","request_id":"%s",'
    '"protocol":"{protocol}","method":"{method}","status":"{status}","pid":{pid},"received":%d,"sent":%d,'
    '"decode_ms":%.3f,"queue_ms":%.3f,"predict_ms":%.3f,"encode_ms":%.3f,"total_ms":%.3f}}\n',
}


class RequestLog:
    """An observer of the journal, which writes to where all lines go, in the form `log_format`.

    Made in the process that serves.
    """

    def __init__(self, log_format: str):
        self.form, self.is_json, self.pattern = FORMS[log_format], log_format == "json", PLAIN[log_format]
        self.logger, self.pid = logging.getLogger(LOGGER), os.getpid()
        self.patterns: dict[str, str] = {}

    def __call__(self, calls: list[Call]) -> None:
        least, to_epoch = self.logger.getEffectiveLevel(), time.time() - time.monotonic()
        piece = b""
        for call in calls:
            level = level_of(call)
            if level < least:
                continue
            moment = stamp(call.ended + to_epoch)
            line = self.plain(call, moment) if is_plain(call) else self.form(self.fields(call, level, moment))
            if len(piece) + len(line) > PIECE:
                out.write(piece)
                piece = b""
            piece += line
        out.write(piece)

    def fields(self, call: Call, level: int, moment: str) -> Fields:
        """What the line says, times in milliseconds; what the call did not reach, or does not have, is left out."""
        message = f"{call.protocol} {call.method} {call.status}"
        fields: Fields = {"ts": moment, "level": logging.getLevelName(level), "logger": LOGGER, "message": message}
        fields["request_id"] = call.id
        if self.is_json:  # for who searches
            fields |= {"protocol": call.protocol, "method": call.method, "status": call.status, "pid": self.pid}
        fields |= {"received": call.received, "sent": call.sent}
        moments = call.begun, call.decoded, call.started, call.predicted, call.ended
        parts = zip(TIMES, (*pairwise(moments), (call.begun, call.ended)), strict=True)
        fields |= {name: round((end - start) * 1e3, 3) for name, (start, end) in parts if start and end}
        if call.rows:
            fields["rows"] = call.rows
        if call.traceparent:
            fields["traceparent"] = call.traceparent
            if self.is_json:
                fields["trace_id"] = call.traceparent[3:35]
        if call.error:
            fields["error"] = call.error
        return fields

    def plain(self, call: Call, moment: str) -> bytes:
        """The same line of a plain call, made in half the time: most are plain."""
        pattern = self.patterns.get(call.protocol) or self.fill(call)
        begun, decoded, started, predicted, ended = call.begun, call.decoded, call.started, call.predicted, call.ended
        line = pattern % (
            *(moment, call.id, call.received, call.sent, (decoded - begun) * 1e3, (started - decoded) * 1e3),
            *((predicted - started) * 1e3, (ended - predicted) * 1e3, (ended - begun) * 1e3),
        )
        return line.encode()

    def fill(self, call: Call) -> str:
        fields = {"protocol": call.protocol, "method": call.method, "status": call.status, "pid": self.pid}
        message = f"{call.protocol} {call.method} {call.status}"
        self.patterns[call.protocol] = pattern = self.pattern.format(logger=LOGGER, message=message, **fields)
        return pattern


def is_plain(call: Call) -> bool:
    """Whether it came to predict() and went well, and has nothing unusual to tell."""
    return bool(
        call.predicted
        and call.method == INFER
        and call.status in SUCCESS
        and not (call.traceparent or call.rows or call.error)
        and '"' not in call.id
        and "\\" not in call.id
    )


def level_of(call: Call) -> int:
    if call.method in PROBES:
        return DEBUG if call.status in SUCCESS else INFO
    return LEVELS.get(call.status, INFO)
