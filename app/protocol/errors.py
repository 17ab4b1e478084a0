"""Errors of requests. Each transport has a table with the status for each class (R19, G1).

InferenceError
├── Unauthenticated     the API key is missing or invalid
├── InvalidInput        the request is malformed, or does not match the model
│   ├── InvalidRequest  all errors of the envelope
│   └── NoBinaryForm    null in a tensor that is sent in binary form
├── NotFound            unknown model, version or path
├── PayloadTooLarge     the request exceeds MAX_REQUEST_BYTES
├── UnsupportedEncoding unknown Content-Encoding
├── ModelError          predict() raised an exception, or returned a result that does not match METADATA
├── Unavailable         the model is not loaded, or the worker is stopping
├── Overloaded          the queue is full
├── DeadlineExceeded    deadline exceeded before predict() could start
└── ClientDisconnected  the client disconnected before predict() started
"""

from __future__ import annotations

import json
import re
from typing import Self, TypeVar

Status = TypeVar("Status")

MAX_TEXT = 500  # a gRPC status text travels in a header, percent-encoded, and headers over 8 KiB are rejected
NOTHING = object()  # the default of `got`, for which None is a value


class InferenceError(Exception):
    """A failed request. Its text is the client's error message, the same on both transports.

    The text is `Subject: problem. Expected X, got Y. Remedy.`, without the parts that are empty. Without a problem, the
    subject is invalid: `Invalid subject.` A text that is only a problem, such as the model's own, is not changed.

    - problem: the reason.
    - subject: the part of the request that is wrong. It may contain names that METADATA declares.
    - expected: the valid values.
    - got: the value from the client, as JSON unless it is text. Only this part has its data, and it is never logged.
    - remedy: the next step for the client or the owner.
    """

    def __init__(
        self, problem: str = "", *, subject: str = "", expected: str = "", got: object = NOTHING, remedy: str = ""
    ):
        self.problem, self.subject, self.expected, self.remedy = problem, subject, expected, remedy
        self.got = None if got is NOTHING else (got or '""') if isinstance(got, str) else quote_name(got)
        self.path = [(subject, subject)] if subject else []  # for the client, and for the log

    def __str__(self) -> str:
        return shorten(self._format(is_logged=False).encode("utf-8", "replace").decode(), MAX_TEXT)

    def log_text(self) -> str:
        """Return the text without what the client sent."""
        return self._format(is_logged=True)

    def _format(self, is_logged: bool) -> str:
        if not (self.path or self.expected or self.got or self.remedy):
            return self.problem
        expected = f"expected {self.expected}" if self.expected else ""
        got = f"got {self.got}" if self.got and not is_logged else ""
        sentences = self.reason(is_logged), ", ".join(filter(None, (expected, got))), self.remedy
        return " ".join(to_sentence(each) for each in sentences if each)

    def reason(self, is_logged: bool = True) -> str:
        """Return the subject and the problem: `input "features": invalid shape`."""
        path = [names[is_logged] for names in self.path]
        problem = self.problem or f"invalid {path.pop() if path else 'request'}"
        return ": ".join([*path, problem])

    def about(self, kind: str, name: str | None = None, *, is_declared: bool = False) -> Self:
        """Put `kind "name"` in front of the subject. The log has the name only if METADATA declares it."""
        full = kind if name is None else f'{kind} "{name}"'
        self.path.insert(0, (full, full if is_declared else kind))
        return self


class Unauthenticated(InferenceError): ...


class InvalidInput(InferenceError): ...


class NoBinaryForm(InvalidInput):
    def __init__(self) -> None:
        super().__init__("null has no binary form", remedy="use JSON or content type pd_json")


class InvalidRequest(InvalidInput):
    """All errors in the envelope of one request."""

    def __init__(self, errors: list[InvalidInput]):
        super().__init__()
        self.errors = errors

    def _format(self, is_logged: bool) -> str:
        return " ".join(each.log_text() if is_logged else str(each) for each in self.errors)


class NotFound(InferenceError): ...


class PayloadTooLarge(InferenceError): ...


class UnsupportedEncoding(InferenceError): ...


class ModelError(InferenceError): ...


class Unavailable(InferenceError): ...


class Overloaded(InferenceError): ...


class DeadlineExceeded(InferenceError): ...


class ClientDisconnected(InferenceError): ...


class ConfigurationError(Exception):
    """A setting, METADATA or predict() that cannot work. The service does not start."""


def to_sentence(text: str) -> str:
    """Return `text` with a period, and with a capital letter unless it begins with a name such as predict()."""
    text = text[0].upper() + text[1:] if re.match(r"[a-z]+([\[ :,.]|$)", text) else text
    return text if text.endswith((".", "?", "…")) else f"{text}."


def quote_name(value: object) -> str:
    """Return a string in quotes, and anything else as JSON, or as Python shows it if JSON cannot represent it."""
    if isinstance(value, str):
        return f'"{value}"'
    try:
        return shorten(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return shorten(repr(value))


def shorten(text: str, limit: int = 60) -> str:
    """Return `text`, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def status_of(error: InferenceError, table: dict[type[InferenceError], Status]) -> Status:
    """Return the status of the error's class, or of its nearest base class in `table`."""
    return next(table[cls] for cls in type(error).__mro__ if cls in table)
