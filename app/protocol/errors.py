"""Request errors. Each transport maps the classes to statuses (R19, G1).

InferenceError
├── Unauthenticated     the API key is missing or invalid
├── InvalidInput        the request is malformed, or does not match the model
│   ├── InvalidRequest  all validation errors of a JSON body
│   └── NoBinaryForm    null in a tensor in binary form
├── NotFound            unknown model, version or path
├── PayloadTooLarge     the request exceeds MAX_REQUEST_BYTES
├── UnsupportedEncoding unknown Content-Encoding
├── ModelError          predict() raised an exception, or returned a result that does not match METADATA
├── Unavailable         the model is not loaded, or the worker is stopping
├── Overloaded          the queue is full
├── DeadlineExceeded    deadline exceeded before predict() could start
│   └── PredictTimeout  predict() ran for longer than PREDICT_TIMEOUT_SECONDS
└── ClientDisconnected  the client disconnected before predict() started
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Self, TypeVar

Status = TypeVar("Status")

MAX_TEXT = (
    500  # gRPC sends the text as a percent-encoded header, and clients reject headers over 8 KiB
)
NOTHING = object()  # default of `got`, because None is a valid value


class InferenceError(Exception):
    """A failed request. str() returns the error message for the client, which is the same in both transports.

    The message is `Subject: problem. Expected X, got Y. Remedy.`, without empty parts. An empty problem results in
    `Invalid subject.` A message that consists only of a problem, such as the model's own, is not changed.

    - problem: the reason.
    - subject: the invalid part of the request. It can contain names declared in METADATA.
    - expected: the valid values.
    - got: the client's value, as JSON unless it is text. Only this part contains client data. The log omits it.
    - remedy: the next step for the client or the operator.
    """

    def __init__(
        self,
        problem: str = "",
        *,
        subject: str = "",
        expected: str = "",
        got: object = NOTHING,
        remedy: str = "",
    ):
        self.problem, self.subject, self.expected, self.remedy = problem, subject, expected, remedy
        self.got = (
            None if got is NOTHING else (got or '""') if isinstance(got, str) else format_value(got)
        )
        self.path = (
            [(subject, subject)] if subject else []
        )  # pairs of text for the client and text for the log

    def __str__(self) -> str:
        return shorten(self._format(is_logged=False).encode("utf-8", "replace").decode(), MAX_TEXT)

    def log_text(self) -> str:
        """Return the message without data from the client."""
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
        """Return a copy whose subject begins with `kind "name"`: `invalid shape` becomes `Input "x": invalid shape`.

        Each caller adds the part of the request that it knows. The log contains the name only if METADATA declares it.
        """
        client_text = kind if name is None else f'{kind} "{name}"'
        log_text = client_text if is_declared else kind
        # Not copy.copy(), which calls __init__() of subclasses in predict.py with unknown parameters.
        error = type(self).__new__(type(self), *self.args)
        error.__dict__.update(self.__dict__)
        error.path = [(client_text, log_text), *self.path]
        return error


class Unauthenticated(InferenceError): ...


class InvalidInput(InferenceError): ...


class NoBinaryForm(InvalidInput):
    def __init__(self) -> None:
        super().__init__(
            "null has no binary form", remedy='use JSON, or declare missing="" in METADATA'
        )


class InvalidRequest(InvalidInput):
    """All validation errors of one JSON body."""

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


class PredictTimeout(DeadlineExceeded): ...


class ClientDisconnected(InferenceError): ...


class ConfigurationError(Exception):
    """An error in a setting, in METADATA or in predict(), which prevents the start of the service."""


def to_sentence(text: str) -> str:
    """Add a period to `text`, and capitalize it unless it begins with a name such as predict()."""
    text = text[0].upper() + text[1:] if re.match(r"[a-z]+([\[ :,.]|$)", text) else text
    return text if text.endswith((".", "?", "…")) else f"{text}."


def format_value(value: object) -> str:
    """Return a string in double quotes, and other values as JSON, or their repr() if JSON cannot represent them."""
    if isinstance(value, str):
        return f'"{value}"'
    try:
        return shorten(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return shorten(repr(value))


def join_names(words: Iterable[Any]) -> str:
    """Join the quoted names for an error message."""
    return ", ".join(map(format_value, words)) or "none"


def shorten(text: str, limit: int = 60) -> str:
    """Truncate `text` to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def status_of(error: InferenceError, table: dict[type[InferenceError], Status]) -> Status:
    """Return the status of the error's class or of the nearest base class in `table`."""
    return next(table[cls] for cls in type(error).__mro__ if cls in table)
