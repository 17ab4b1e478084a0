"""What can go wrong with a request. No HTTP or gRPC number here: each transport owns a table from kind to status.

InferenceError
├── Unauthenticated   no API key, or a wrong one
├── InvalidInput      the request is malformed, or does not fit the model
├── NotFound          no such model, version or path
├── TooLarge          the request is over MAX_REQUEST_BYTES
├── UnsupportedCoding the body's Content-Encoding is not understood
├── ModelError        predict() raised, or returned what METADATA does not declare
├── NotReady          the model is not loaded, or the worker is stopping
├── Overloaded        as many requests run and wait as may
├── TimedOut          predict() could not begin in time for the deadline
└── Abandoned         the caller left before predict() began

SetupError stands beside them: the project itself is wrong, and the service does not start.
"""

from __future__ import annotations

import re
from typing import Self, TypeVar

Status = TypeVar("Status")

# Where an error's text goes on with values: of a tensor, of what else a client sent, in a codec's complaint.
VALUES = re.compile(r"""(\bdata: |\bgot (?=\[*(?:["'{]|b["']))|: no [\w-]+: \w+: ).*""", re.DOTALL)
# A gRPC status text travels in a header, percent-encoded, and headers over 8 KiB are refused.
LONGEST_TEXT = 500
# Of a text that is missing; by these words others know it, to say what helps.
NO_BINARY_FORM = "null has no binary form; JSON has one, and so has content type pd_json"

NOTHING = object()  # the default of `got`, for which None is a value

# The note on an error of predict() that load() is to blame for.
NO_MODEL = "load() returned None"


class InferenceError(Exception):
    """A failed request. Its text is the client's error message, the same on both transports (R19, G1).

    The text is `subject: problem: expected X, got Y; remedy`, without the parts that are empty.

    problem: what is wrong, in the service's own words
    subject: what it is about, in the service's own words or with a name that METADATA declares
    expected: what is valid
    got: the value or name that the client sent. Never logged. Objects other than text appear by repr()
    remedy: what the client or the owner can do

    Text of a client must not be in any field but `got`.
    """

    def __init__(
        self, problem: str = "", *, subject: str = "", expected: str = "", got: object = NOTHING, remedy: str = ""
    ):
        self.problem, self.expected, self.remedy = problem, expected, remedy
        self.got = None if got is NOTHING else got if isinstance(got, str) else shorten(repr(got))
        self.subject = self.logged_subject = subject

    def __str__(self) -> str:
        text = self._format(self.subject, self.got)
        return shorten(text.encode("utf-8", "replace").decode(), LONGEST_TEXT)

    def log_text(self) -> str:
        """Return the text without what the client sent."""
        return self._format(self.logged_subject, None)

    def _format(self, subject: str, got: str | None) -> str:
        values = ", ".join([f"expected {self.expected}"] * bool(self.expected) + [f"got {got}"] * (got is not None))
        text = ": ".join(filter(None, (subject, self.problem, values)))
        return "; ".join(filter(None, (text, self.remedy)))

    def about(self, kind: str, name: str | None = None, *, is_declared: bool = False) -> Self:
        """Put `kind "name"` in front of the subject and return the error itself: `input "features": shape`.

        The log has the name only if METADATA declares it (`is_declared`): otherwise the client chose it.
        """
        full = kind if name is None else f'{kind} "{name}"'
        logged = full if is_declared else kind
        self.subject = ": ".join(filter(None, (full, self.subject)))
        self.logged_subject = ": ".join(filter(None, (logged, self.logged_subject)))
        return self


class Unauthenticated(InferenceError):
    pass


class InvalidInput(InferenceError):
    pass


class NotFound(InferenceError):
    pass


class TooLarge(InferenceError):
    pass


class UnsupportedCoding(InferenceError):
    pass


class ModelError(InferenceError):
    pass


class NotReady(InferenceError):
    pass


class Overloaded(InferenceError):
    pass


class TimedOut(InferenceError):
    pass


class Abandoned(InferenceError):
    pass


class SetupError(Exception):
    """A setting, METADATA or predict() that cannot work; stops the start."""


def told(error: BaseException) -> str:
    """Its class and text: "ValueError: no such column"."""
    return f"{type(error).__name__}: {error}".removesuffix(": ") + blame(error)


def blame(error: BaseException) -> str:
    """What an error's text goes on with where the model is None, which no model's own code expects."""
    return f"; {NO_MODEL}" if NO_MODEL in getattr(error, "__notes__", ()) else ""


def shorten(text: str, limit: int = 60) -> str:
    """`text`, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def without_values(text: str) -> str:
    """The text of an error for a log, which holds nothing of what is in a request or response."""
    return VALUES.sub(r"\1…", text)


def status_of(error: InferenceError, table: dict[type[InferenceError], Status]) -> Status:
    """What a transport's `table` says of the error's class, or of the nearest class above it."""
    return next(table[cls] for cls in type(error).__mro__ if cls in table)
