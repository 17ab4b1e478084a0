"""The form of every line of the log, text or JSON, and the one way out: a write of whole lines to standard error."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import socket
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import orjson

from app.call import serving

STDERR = 2
# So long lines may wait for a reader, all in all; half of the time that passes comes back.
PATIENCE_SECONDS, REGAINED = 0.5, 0.5
# When that was not enough, none waits for so long.
PAUSE_SECONDS = 10.0
# What would act on a terminal, or end a line for some who read it, and is no control of ASCII's: JSON escapes those.
UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
# What every record has; the rest came by `extra`.
OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
# What to_text() places itself or, as the pid, leaves out.
HEAD = {"ts", "level", "logger", "message", "pid", "request_id", "exception"}
NUMBERS = {int, float}

Fields = dict[str, Any]
Form = Callable[[Fields], bytes]
logger = logging.getLogger("app")


@lru_cache(2)
def second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def stamp(seconds: float) -> str:
    """The moment, `seconds` of the epoch, by RFC 3339, to the microsecond."""
    whole = int(seconds)
    return "%s.%06dZ" % (second(whole), (seconds - whole) * 1e6)  # noqa: UP031 - a third quicker than an f-string


def printable(text: str) -> str:
    """`text` on one line, with nothing in it that would act on a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def quoted(value: Any) -> bytes:
    """`value` as JSON, on one line; where JSON has no word for a part of it, that part's str()."""
    try:
        line = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # half a surrogate pair, or an integer of more than 64 bits
        line = json.dumps(
            {str(key): str(value[key]) for key in value} if isinstance(value, dict) else str(value)
        ).encode()
    if line.isascii() and b"\x7f" not in line:
        return line
    return UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", line.decode()).encode()


def to_json(fields: Fields) -> bytes:
    return quoted(fields) + b"\n"


def to_text(fields: Fields) -> bytes:
    """`TIME LEVEL LOGGER [REQUEST ID]: MESSAGE NAME=VALUE ...`; a traceback follows, its lines indented."""
    whose = f" [{fields['request_id']}]" if "request_id" in fields else ""
    line = f"{fields['ts']} {fields['level']} {fields['logger']}{whose}: {fields['message']}"
    for name, value in fields.items():
        if name not in HEAD:
            line += f" {name}={value if type(value) in NUMBERS else quoted(value).decode()}"
    line = printable(line)
    for each in fields.get("exception", "").splitlines():
        line += f"\n    {printable(each)}"
    return line.encode() + b"\n"


FORMS: dict[str, Form] = {"json": to_json, "text": to_text}


def head_of(record: logging.LogRecord) -> Fields:
    """What any line of `record` says: the request's id too, where its thread works for one."""
    fields: Fields = {"ts": stamp(record.created), "level": record.levelname, "logger": record.name, "message": ""}
    fields["pid"] = record.process
    if calls := serving.get():
        fields["request_id"] = ",".join(call.id for call in calls)
        if traceparent := calls[0].traceparent:
            fields["trace_id"] = traceparent[3:35]
    return fields


def fields_of(record: logging.LogRecord) -> Fields:
    """What its line says, with what `extra` gave; raises whatever the user's own objects do."""
    fields = head_of(record) | {"message": record.getMessage()}
    for name, value in vars(record).items():
        if name not in OWN:
            fields.setdefault(name, value)
    if record.exc_info:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    if record.stack_info:
        fields["stack"] = record.stack_info
    return fields


class Formatter(logging.Formatter):
    """Makes a line of a record by `form`."""

    def __init__(self, form: Form):
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        try:
            line = self.form(fields_of(record))
        except Exception as error:  # arguments that do not fit the message, or a str() that fails
            where = f"{record.pathname}:{record.lineno}"
            message = f"a record of {where} cannot be written: {type(error).__name__}"
            line = self.form(head_of(record) | {"message": message})
        return line[:-1].decode()


class Lines(logging.Handler):
    """Writes to standard error, in one piece what the system lets pass in one: others write to the same.

    Nobody waits long for a reader that is slow, or has stopped to read: what it misses is counted, and told later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.descriptor = STDERR
        self.send: Callable[[bytes], int] = partial(os.write, STDERR)
        self.is_open = False
        self.lost = 0  # lines
        self.is_cut = False  # the last line that was written
        self.patience, self.seen, self.pause_ends = PATIENCE_SECONDS, 0.0, 0.0

    def open(self) -> None:
        """Makes writes to a pipe or a socket not wait, and only ours: others that have it would not expect that."""
        if self.is_open:
            return
        self.is_open = True
        with suppress(OSError):  # there is none, or it is not this system's way, or not this user's
            mode = os.fstat(STDERR).st_mode
            if stat.S_ISFIFO(mode):
                self.descriptor = os.open(f"/proc/self/fd/{STDERR}", os.O_WRONLY | os.O_NONBLOCK)
                self.send = partial(os.write, self.descriptor)
            elif stat.S_ISSOCK(mode):
                reader = socket.socket(fileno=os.dup(STDERR))
                self.send = lambda lines: reader.send(lines, socket.MSG_DONTWAIT)

    def emit(self, record: logging.LogRecord) -> None:
        self.write(self.format(record).encode() + b"\n")

    def write(self, lines: bytes) -> None:
        self.acquire()
        try:
            now = time.monotonic()
            if self.lost and now >= self.pause_ends:
                self.tell_lost()
            if rest := self.push(lines):
                if not self.lost:
                    self.pause_ends = now + PAUSE_SECONDS
                self.lost += rest.count(b"\n")
        finally:
            self.release()

    def tell_lost(self) -> None:
        about = {"name": logger.name, "levelname": "WARNING", "args": (self.lost,)}
        record = logging.makeLogRecord({"msg": "nobody read the log, and %d lines are lost", **about})
        if not self.push(self.format(record).encode() + b"\n"):
            self.lost = 0

    def flush(self) -> None:
        """What logging calls at the end of the process."""
        self.pause_ends = 0.0
        self.write(b"")

    def push(self, lines: bytes) -> bytes:
        """What of them could not be written. A line that was cut is ended first."""
        left = b"\n" + lines if self.is_cut else lines
        while left:
            try:
                sent = self.send(left)
                self.is_cut, left = left[sent - 1 : sent] != b"\n", left[sent:]
            except BlockingIOError:
                if self.lost or not self.wait():
                    break
            except OSError:  # there is no reader
                break
        return left[-len(lines) :] if lines else b""

    def wait(self) -> bool:
        """Whether there is room again before the patience ends."""
        begun = time.monotonic()
        patience = min(PATIENCE_SECONDS, self.patience + (begun - self.seen) * REGAINED)
        writable = select.poll()
        writable.register(self.descriptor, select.POLLOUT)
        has_room = bool(writable.poll(max(0, patience) * 1000))
        self.seen = time.monotonic()
        self.patience = patience - (self.seen - begun)
        return has_room


out = Lines()


def configure(log_format: str, log_level: str = "INFO") -> None:
    """All that is logged from now on, by whomever, goes out in that form: warnings and uncaught errors too.

    What grpcio's core writes by itself has no other form; in JSON it is left out, unless GRPC_VERBOSITY is set.
    It is heeded only where grpcio is imported later.
    """
    out.open()
    out.setFormatter(Formatter(FORMS[log_format]))
    logging.root.handlers[:] = [out]
    logging.root.setLevel(log_level)
    logging.captureWarnings(True)
    warnings.formatwarning = one_line
    sys.excepthook = tell_uncaught
    threading.excepthook = lambda args: tell_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    if log_format == "json":
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def one_line(message: Any, category: type, filename: str, lineno: int, line: str | None = None) -> str:
    """A warning, as the warnings module would write it without the line of source."""
    return f"{filename}:{lineno}: {category.__name__}: {message}"


def tell_uncaught(kind: Any, error: Any, traceback: Any) -> None:
    if not issubclass(kind, SystemExit):
        logger.critical("nobody caught this", exc_info=(kind, error, traceback))


def form_wanted() -> str:
    """What LOG_FORMAT says, for what is told before the settings are read."""
    text = os.environ.get("LOG_FORMAT", "").strip().lower()
    return text if text in FORMS else "text"
