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

ConfigurationError is separate: the project itself is wrong, and the service does not start.
"""

from __future__ import annotations

from typing import Self, TypeVar

Status = TypeVar("Status")

# A gRPC status text travels in a header, percent-encoded, and headers over 8 KiB are rejected.
MAX_TEXT = 500
NOTHING = object()  # the default of `got`, for which None is a value


class InferenceError(Exception):
    """A failed request. Its text is the client's error message, the same on both transports.

    The text is `subject: problem: expected X, got Y; remedy`, without the parts that are empty.

    - problem: the reason.
    - subject: the part of the request that is wrong. It may contain names that METADATA declares.
    - expected: the valid values.
    - got: the value or name that the client sent. It is never logged. Objects other than text appear by repr().
    - remedy: the next step for the client or the owner.

    Only `got` may contain text of the client.
    """

    def __init__(
        self, problem: str = "", *, subject: str = "", expected: str = "", got: object = NOTHING, remedy: str = ""
    ):
        self.problem, self.expected, self.remedy = problem, expected, remedy
        self.got = None if got is NOTHING else got if isinstance(got, str) else shorten(repr(got))
        self.subject = self.logged_subject = subject

    def __str__(self) -> str:
        text = self._format(self.subject, self.got)
        return shorten(text.encode("utf-8", "replace").decode(), MAX_TEXT)

    def log_text(self) -> str:
        """Return the text without what the client sent."""
        return self._format(self.logged_subject, None)

    def _format(self, subject: str, got: str | None) -> str:
        values = [f"expected {self.expected}"] if self.expected else []
        values += [] if got is None else [f"got {got}"]
        text = ": ".join(filter(None, (subject, self.problem, ", ".join(values))))
        return "; ".join(filter(None, (text, self.remedy)))

    def about(self, kind: str, name: str | None = None, *, is_declared: bool = False) -> Self:
        """Put `kind "name"` in front of the subject and return the error itself: `input "features": shape`.

        The log has the name only if METADATA declares it (`is_declared`). Otherwise the client chose it.
        """
        full = kind if name is None else f'{kind} "{name}"'
        self.subject = ": ".join(filter(None, (full, self.subject)))
        self.logged_subject = ": ".join(filter(None, (full if is_declared else kind, self.logged_subject)))
        return self


class Unauthenticated(InferenceError): ...


class InvalidInput(InferenceError): ...


class NoBinaryForm(InvalidInput):
    def __init__(self) -> None:
        super().__init__("null has no binary form", subject="data", remedy="use JSON, or content type pd_json")


class InvalidRequest(InvalidInput):
    """All errors in the envelope of one request."""

    def __init__(self, errors: list[InvalidInput]):
        super().__init__(got="")
        self.errors = errors

    def _format(self, subject: str, got: str | None) -> str:
        return "; ".join(each.log_text() if got is None else str(each) for each in self.errors)


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


def quote_name(value: object) -> str:
    """Return a string in quotes, and anything else as Python shows it."""
    return f'"{value}"' if isinstance(value, str) else shorten(repr(value))


def shorten(text: str, limit: int = 60) -> str:
    """Return `text`, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def status_of(error: InferenceError, table: dict[type[InferenceError], Status]) -> Status:
    """Return the status of the error's class, or of its nearest base class in `table`."""
    return next(table[cls] for cls in type(error).__mro__ if cls in table)
