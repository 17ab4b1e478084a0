"""Logging to standard error, one line per record, as text or JSON.

A slow reader of the log must not block requests, so a thread writes the lines:

    record -> LogHandler.prepare(): lines -> queue -> writer thread -> standard error

If the queue is full, its lines are dropped and counted.
"""

import json
import logging
import os
import queue
import select
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import QueueHandler
from typing import Any

import orjson

from app.inference.call import Call, current_calls

STDERR = 2
MAX_QUEUED = 4096  # records, or groups of access log lines, in the queue of the writer thread
# Maximum wait for the reader of the log, at exit and in processes without a writer thread.
FLUSH_SECONDS = 0.5
# Attributes of every record. Others come from the argument `extra` of a logging function.
STANDARD_ATTRIBUTES = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
# Fields with a position of their own in a line of text, and the pid, which is omitted there.
POSITIONED_FIELDS = {
    "timestamp",
    "level",
    "logger",
    "message",
    "pid",
    "request_id",
    "stacktrace",
}
# grpcio's logger for metadata, and the start of its message about a value that is not UTF-8.
GRPC_METADATA_LOGGER = "grpc._cython.cygrpc"
INVALID_METADATA = "Invalid encoding on"
INVALID_METADATA_SECONDS = 60
# Fields that the last line of a traceback also contains.
ERROR_FIELDS = {"error_type", "error_message"}

logger = logging.getLogger("app")


def format_time(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339, with microseconds."""
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat(timespec='microseconds')[:-6]}Z"


def trace_fields(call: Call) -> dict[str, str]:
    """Return the trace id and the span id, or an empty dict without a trace."""
    if not call.trace.traceparent:
        return {}
    return {"trace_id": call.trace.trace_id, "span_id": call.trace.span_id}


def escape(text: str) -> str:
    """Escape nonprintable characters, such as line breaks and control characters of terminals."""
    if text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if character.isprintable():
        return character
    if character == "\x7f":  # JSON does not escape it
        return r"\u007f"
    return json.dumps(character)[1:-1]


def to_json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    # A lone surrogate, a key that is not a str, or an integer of more than 64 bits.
    except TypeError:
        return json.dumps(value, default=str, skipkeys=True)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object, with the id of the current request."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "timestamp": format_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        calls = current_calls.get()
        if calls:
            fields["request_id"] = ",".join(call.id for call in calls)
            fields |= trace_fields(calls[0])
        for name, value in vars(record).items():
            if name not in STANDARD_ATTRIBUTES:
                fields[name] = value
        if record.stack_info:
            fields["stacktrace"] = record.stack_info
        if record.exc_info and record.exc_info[0]:
            error_class, error, _ = record.exc_info
            fields["error_type"] = error_class.__name__
            fields["error_message"] = "".join(traceback.format_exception_only(error)).strip()
            fields["stacktrace"] = self.formatException(record.exc_info)
        return self.format_fields(fields)

    def format_fields(self, fields: dict[str, Any]) -> str:
        """Format the fields as a line. Timestamp, level, logger and message are required."""
        return escape(to_json(fields))


class TextFormatter(JsonFormatter):
    """Formats a record as `TIME LEVEL LOGGER [REQUEST ID]: MESSAGE NAME=VALUE ...`.

    Indented lines of the traceback follow.
    """

    def format_fields(self, fields: dict[str, Any]) -> str:
        stacktrace = fields.get("stacktrace", "")
        origin = f"{fields['timestamp']} {fields['level']} {fields['logger']}"
        if "request_id" in fields:
            origin += f" [{fields['request_id']}]"
        line = f"{origin}: {fields['message']}"
        for name, value in fields.items():
            is_in_stacktrace = bool(stacktrace) and name in ERROR_FIELDS
            if name not in POSITIONED_FIELDS and not is_in_stacktrace:
                line += f" {name}={to_json(value)}"
        return "\n    ".join(map(escape, [line, *stacktrace.splitlines()]))


FORMATTERS: dict[str, type[JsonFormatter]] = {"json": JsonFormatter, "text": TextFormatter}


class LogHandler(QueueHandler):
    """Passes lines to a writer thread. If the queue is full, it drops lines.

    The next line that is written then has their number in front. Before start(), and in a process
    that was forked after start(), the calling thread writes.
    """

    queue: queue.Queue[str]

    def __init__(self) -> None:
        super().__init__(queue.Queue(MAX_QUEUED))
        self._thread = threading.Thread()
        # Numbers of lines. They are approximate, because threads count without a lock.
        self._dropped = 0
        self._reported = 0

    def start(self) -> None:
        """Start the writer thread.

        It is created here, because a fork marks existing Thread objects as stopped.
        """
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def prepare(self, record: logging.LogRecord) -> str:
        """Return the record as text. If this fails, return a record about the failure.

        It fails if the arguments do not match the format string, or if str() of one fails.
        """
        try:
            return self.format(record) + "\n"
        except Exception as error:
            place = f"{record.pathname}:{record.lineno}"
            problem = f"Cannot write a record of {place}: {type(error).__name__}"
            attributes = {"name": record.name, "levelname": record.levelname, "msg": problem}
            return self.format(logging.makeLogRecord(attributes)) + "\n"

    def enqueue(self, lines: str) -> None:  # type: ignore[override]
        """Queue complete lines for the writer thread. Without this thread, write them."""
        if not self._thread.is_alive():  # as in a forked process
            self._send_within(FLUSH_SECONDS, lines)
            return

        try:
            self.queue.put_nowait(lines)
        except queue.Full:
            self._drop(lines)

    def _send_within(self, seconds: float, lines: str) -> None:
        """Write the lines, or drop them if the reader of the log has no room for them in time."""
        _, writable, _ = select.select([], [STDERR], [], seconds)
        if writable:
            self._send(lines)
        else:
            self._drop(lines)

    def flush(self) -> None:
        """Wait at most FLUSH_SECONDS until all lines are written. logging.shutdown() calls this."""
        end = time.monotonic() + FLUSH_SECONDS
        while self._thread.is_alive() and self.queue.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.005)

    def _drop(self, lines: str) -> None:
        self._dropped += lines.count("\n")

    def _run(self) -> None:
        while True:
            self._send(self.queue.get())
            self.queue.task_done()

    def _send(self, lines: str) -> None:
        """Write the lines to standard error, after a message about dropped ones if there are any.

        Block until the reader of the log has room for them.
        """
        lines = self._message_about_dropped() + lines
        data = lines.encode(errors="backslashreplace")
        with suppress(OSError):  # stderr is closed
            while data:
                size = os.write(STDERR, data)
                data = data[size:]

    def _message_about_dropped(self) -> str:
        """Return a line with the number of lines that were dropped since the last one, or ""."""
        count = self._dropped - self._reported
        if not count:
            return ""
        self._reported += count
        attributes = {
            "name": logger.name,
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": f"Dropped {count} log lines",
        }
        return self.prepare(logging.makeLogRecord(attributes))


class InvalidMetadataFilter(logging.Filter):
    """Limits records about invalid metadata to one per minute, without the value and the traceback.

    Each call of a client can cause many of them, and the value can be an API key.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0  # a time of time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(INVALID_METADATA):
            return True
        now = time.monotonic()
        if now < self._next or not logging.root.isEnabledFor(logging.WARNING):
            return False

        self._next = now + INVALID_METADATA_SECONDS
        record.levelno = logging.WARNING
        record.levelname = "WARNING"
        record.msg = "A client sent metadata that is not UTF-8"
        record.args = ()
        record.exc_info = None
        return True


handler = LogHandler()
invalid_metadata_filter = InvalidMetadataFilter()


def configure(log_format: str | None = None, log_level: str = "INFO") -> None:
    """Log all records, warnings and uncaught exceptions in this format.

    By default, read the format from LOG_FORMAT. With JSON, disable the log of grpcio's C core
    unless GRPC_VERBOSITY is set. Call this before grpcio is imported.
    """
    format_name = (log_format or os.environ.get("LOG_FORMAT", "")).strip().lower()
    formatter_class = FORMATTERS.get(format_name, TextFormatter)
    handler.setFormatter(formatter_class())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(log_level)
    logging.getLogger(GRPC_METADATA_LOGGER).addFilter(invalid_metadata_filter)
    logging.captureWarnings(True)
    warnings.formatwarning = _format_warning
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    if format_name == "json":
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Return a warning in one line, without the line of code that caused it."""
    return f"{filename}:{lineno}: {category.__name__}: {message}"


def _log_uncaught(error_class: Any, error: Any, trace: Any) -> None:
    if not issubclass(error_class, SystemExit):
        logger.critical("Unhandled exception", exc_info=(error_class, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
