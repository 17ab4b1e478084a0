"""The log: one line per record, as text or as JSON, on standard error. A slow reader of it holds up no request."""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import lru_cache
from logging.handlers import QueueHandler
from typing import Any

from app.call import serving

STDERR = 2
# A pipe takes this many bytes at once, so that lines of several processes do not mix.
PIECE_BYTES = getattr(select, "PIPE_BUF", 512)
# Records, or groups of access log lines, that wait for the thread that writes them.
MAX_QUEUED = 4096
# Limit of the wait for a reader of the log without a thread, and when the process ends.
WAIT_SECONDS = 0.5
# Attributes of every record. All others were passed as `extra`.
STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
# Fields with a place of their own in a line of text. The pid is left out.
HEAD = {"ts", "level", "logger", "message", "pid", "request_id", "exception"}

Fields = dict[str, Any]
logger = logging.getLogger("app")


@lru_cache(2)
def format_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def format_time(seconds: float) -> str:
    """Return a time in seconds since the epoch in the form of RFC 3339, with microseconds."""
    second = int(seconds)
    return f"{format_second(second)}.{int((seconds - second) * 1e6):06d}Z"


def escape(text: str) -> str:
    """Return `text` on one line, without characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1].replace("\x7f", "\\u007f") for each in text)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        return self.format_fields(self.fields_of(record))

    def format_fields(self, fields: Fields) -> str:
        return json.dumps(fields, default=str, skipkeys=True, separators=(",", ":"))

    def fields_of(self, record: logging.LogRecord) -> Fields:
        """Return the fields of a line, with the id of the request that the thread works for."""
        fields = {name: value for name, value in vars(record).items() if name not in STANDARD}
        fields |= {"ts": format_time(record.created), "level": record.levelname, "logger": record.name}
        fields |= {"message": record.getMessage(), "pid": record.process}
        if calls := serving.get():
            fields["request_id"] = ",".join(call.id for call in calls)
            if traceparent := calls[0].traceparent:
                fields["trace_id"] = traceparent[3:35]
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return fields


class TextFormatter(JsonFormatter):
    """Formats a record as `TIME LEVEL LOGGER [REQUEST ID]: MESSAGE NAME=VALUE ...`, and below it the traceback."""

    def format_fields(self, fields: Fields) -> str:
        request = f" [{fields['request_id']}]" if "request_id" in fields else ""
        line = f"{fields['ts']} {fields['level']} {fields['logger']}{request}: {fields['message']}"
        for name, value in fields.items():
            if name not in HEAD:
                line += f" {name}={json.dumps(value, default=str, skipkeys=True, ensure_ascii=False)}"
        return "\n    ".join(map(escape, (line, *fields.get("exception", "").splitlines())))


FORMATTERS: dict[str, type[JsonFormatter]] = {"json": JsonFormatter, "text": TextFormatter}


class LogWriter(QueueHandler):
    """Writes lines to standard error: after start() in a thread of its own, otherwise in the thread that logs.

    If a reader leaves no room, lines are dropped, and their number is logged later. A forked process writes without a
    thread until it calls start() itself.
    """

    queue: queue.Queue[bytes | threading.Event]

    def __init__(self) -> None:
        super().__init__(queue.Queue(MAX_QUEUED))
        self._stderr = select.poll()
        self._stderr.register(STDERR, select.POLLOUT)
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self.queue, self._has_thread = queue.Queue(MAX_QUEUED), False
        self._dropped = self._reported = 0  # lines. Each has one writer, so that they need no lock

    def start(self) -> None:
        """Write in a thread from now on."""
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(target=self._run, name="log", daemon=True).start()

    def prepare(self, record: logging.LogRecord) -> bytes:
        try:
            text = self.format(record)
        except Exception as error:  # arguments that do not fit the message, or an object whose str() fails
            problem = f"a record of {record.pathname}:{record.lineno} cannot be written: {type(error).__name__}"
            plain = {"name": record.name, "levelname": record.levelname, "msg": problem}
            text = self.format(logging.makeLogRecord(plain))
        return text.encode(errors="backslashreplace") + b"\n"

    def write(self, lines: bytes) -> None:
        """Write complete lines that are formatted already."""
        with self.lock:  # type: ignore[union-attr]
            self.enqueue(lines)

    def enqueue(self, lines: bytes) -> None:  # type: ignore[override]
        """Queue the lines. Without a thread, write them if there is room within WAIT_SECONDS."""
        try:
            if self._has_thread:
                self.queue.put_nowait(lines)
            elif self._stderr.poll(WAIT_SECONDS * 1000):
                self._send(lines)
            else:
                raise queue.Full
        except queue.Full:
            self._dropped += lines.count(b"\n")

    def flush(self) -> None:
        """Wait until the thread has written everything, at most WAIT_SECONDS. logging.shutdown() calls this."""
        if self._has_thread:
            written = threading.Event()
            with suppress(queue.Full):
                self.queue.put(written, timeout=WAIT_SECONDS)
                written.wait(WAIT_SECONDS)

    def _run(self) -> None:
        while True:
            item = self.queue.get()
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._send(item)

    def _send(self, lines: bytes) -> None:
        """Write the lines, as many at once as a pipe takes, after the number of those that were dropped before."""
        if dropped := self._dropped - self._reported:
            self._reported += dropped
            record = logger.makeRecord(logger.name, logging.WARNING, "", 0, "%d log lines dropped", (dropped,), None)
            lines = self.prepare(record) + lines
        while lines:
            end = lines.rfind(b"\n", 0, PIECE_BYTES) + 1 or PIECE_BYTES
            try:
                self._stderr.poll()
                lines = lines[os.write(STDERR, lines[:end]) :]
            except BlockingIOError:  # another process took the room
                continue
            except OSError:  # nobody can read it
                return


out = LogWriter()


def configure(log_format: str, log_level: str = "INFO") -> None:
    """Write all records, warnings and uncaught exceptions in this format.

    grpcio's core writes lines of its own. With JSON they are left out, unless GRPC_VERBOSITY is set. Call this before
    grpcio is imported.
    """
    out.setFormatter(FORMATTERS[log_format]())
    logging.root.handlers[:] = [out]
    logging.root.setLevel(log_level)
    logging.captureWarnings(True)
    warnings.formatwarning = lambda message, category, filename, lineno, line=None: (
        f"{filename}:{lineno}: {category.__name__}: {message}"
    )
    sys.excepthook = log_uncaught
    threading.excepthook = lambda args: log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    if log_format == "json":
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def log_uncaught(kind: Any, error: Any, traceback: Any) -> None:
    if not issubclass(kind, SystemExit):
        logger.critical("Unhandled exception", exc_info=(kind, error, traceback))


def form_wanted() -> str:
    """Return LOG_FORMAT for messages before the settings are read."""
    text = os.environ.get("LOG_FORMAT", "").strip().lower()
    return text if text in FORMATTERS else "text"
