"""Logging to standard error, one line per record, as text or JSON. A slow reader of the log does not block requests."""

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
FLUSH_SECONDS = (
    0.5  # maximum wait for the reader of the log, at exit and in processes without a writer thread
)
STANDARD = {
    *vars(logging.makeLogRecord({})),
    "message",
    "asctime",
    "taskName",
}  # other attributes come from `extra`
# Fields with a fixed position in a line of text, and the pid, which is omitted there.
HEAD = {"timestamp", "level", "logger", "message", "pid", "request_id", "stacktrace"}

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
    return "".join(
        each if each.isprintable() else json.dumps(each)[1:-1].replace("\x7f", "\\u007f")
        for each in text
    )


def to_json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except (
        TypeError
    ):  # a lone surrogate, a key that is not a str, or an integer of more than 64 bits
        return json.dumps(value, default=str, skipkeys=True)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object, with the id of the current request."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "timestamp": format_time(record.created),
            "level": record.levelname,
        }
        fields |= {"logger": record.name, "message": record.getMessage(), "pid": record.process}
        calls = current_calls.get()
        if calls:
            fields["request_id"] = ",".join(call.id for call in calls)
            fields |= trace_fields(calls[0])
        fields |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        fields |= {"stacktrace": record.stack_info} if record.stack_info else {}
        if record.exc_info and record.exc_info[0]:
            message = "".join(traceback.format_exception_only(record.exc_info[1])).strip()
            fields |= {"error_type": record.exc_info[0].__name__, "error_message": message}
            fields["stacktrace"] = self.formatException(record.exc_info)
        return self.format_fields(fields)

    def format_fields(self, fields: dict[str, Any]) -> str:
        """Format the fields as a line. Timestamp, level, logger and message are required."""
        return escape(to_json(fields))


class TextFormatter(JsonFormatter):
    """Formats a record as `TIME LEVEL LOGGER [REQUEST ID]: MESSAGE NAME=VALUE ...`, followed by the traceback."""

    def format_fields(self, fields: dict[str, Any]) -> str:
        request = f" [{fields['request_id']}]" if "request_id" in fields else ""
        hidden = HEAD | {"error_type", "error_message"} if "stacktrace" in fields else HEAD
        extra = [
            f" {name}={to_json(value)}" for name, value in fields.items() if name not in hidden
        ]
        head = f"{fields['timestamp']} {fields['level']} {fields['logger']}{request}: {fields['message']}"
        return "\n    ".join(
            map(escape, ("".join([head, *extra]), *fields.get("stacktrace", "").splitlines()))
        )


FORMATTERS: dict[str, type[JsonFormatter]] = {"json": JsonFormatter, "text": TextFormatter}


class LogHandler(QueueHandler):
    """Passes lines to a writer thread. If the queue is full, it drops lines, and logs their number later.

    Before start(), and in a process that was forked after start(), the calling thread writes.
    """

    queue: queue.Queue[str]

    def __init__(self) -> None:
        super().__init__(queue.Queue(MAX_QUEUED))
        self._thread = threading.Thread()
        self._dropped = self._reported = (
            0  # numbers of lines, approximate because threads count without a lock
        )

    def start(self) -> None:
        """Start the writer thread. It is created here, because a fork marks existing Thread objects as stopped."""
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def prepare(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except (
            Exception
        ) as error:  # wrong arguments for the format string, or an object whose str() fails
            problem = f"Cannot write a record of {record.pathname}:{record.lineno}: {type(error).__name__}"
            plain = {"name": record.name, "levelname": record.levelname, "msg": problem}
            return self.format(logging.makeLogRecord(plain)) + "\n"

    def enqueue(self, lines: str) -> None:  # type: ignore[override]
        """Queue complete lines for the writer thread. Without this thread, write them."""
        try:
            if self._thread.is_alive():  # False in a forked process
                self.queue.put_nowait(lines)
            elif select.select([], [STDERR], [], FLUSH_SECONDS)[1]:
                self._send(lines)
            else:
                raise queue.Full
        except queue.Full:
            self._dropped += lines.count("\n")

    def flush(self) -> None:
        """Wait at most FLUSH_SECONDS until all lines are written. logging.shutdown() calls this."""
        end = time.monotonic() + FLUSH_SECONDS
        while self._thread.is_alive() and self.queue.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.005)

    def _run(self) -> None:
        while True:
            self._send(self.queue.get())
            self.queue.task_done()

    def _send(self, lines: str) -> None:
        if dropped := self._dropped - self._reported:
            self._reported += dropped
            text = f"Dropped {dropped} log lines"
            lines = (
                self.prepare(logging.LogRecord(logger.name, logging.WARNING, "", 0, text, (), None))
                + lines
            )
        data = lines.encode(errors="backslashreplace")
        with suppress(OSError):  # stderr is closed
            while data:
                data = data[os.write(STDERR, data) :]


handler = LogHandler()


def configure(log_format: str | None = None, log_level: str = "INFO") -> None:
    """Log all records, warnings and uncaught exceptions in this format. By default, read the format from LOG_FORMAT.

    With JSON, disable the log of grpcio's C core unless GRPC_VERBOSITY is set. Call this before grpcio is imported.
    """
    name = (log_format or os.environ.get("LOG_FORMAT", "")).strip().lower()
    handler.setFormatter(FORMATTERS.get(name, TextFormatter)())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(log_level)
    logging.captureWarnings(True)
    warnings.formatwarning = lambda message, category, filename, lineno, line=None: (
        f"{filename}:{lineno}: {category.__name__}: {message}"
    )
    sys.excepthook = log_uncaught
    threading.excepthook = lambda args: log_uncaught(
        args.exc_type, args.exc_value, args.exc_traceback
    )
    if name == "json":
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def log_uncaught(kind: Any, error: Any, trace: Any) -> None:
    if not issubclass(kind, SystemExit):
        logger.critical("Unhandled exception", exc_info=(kind, error, trace))
