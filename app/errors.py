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
from typing import TypeVar

Status = TypeVar("Status")

# Where an error's text goes on with values: of a tensor, of what else a client sent, in a codec's complaint.
VALUES = re.compile(r"""(\bdata: |\bgot (?=\[*(?:["'{]|b["']))|: no [\w-]+: \w+: ).*""", re.DOTALL)
# A gRPC status text travels in a header, percent-encoded, and headers over 8 KiB are refused.
LONGEST_TEXT = 500
# Of a text that is missing; by these words others know it, to say what helps.
NO_BINARY_FORM = "null has no binary form; JSON has one, and so has content type pd_json"

# The note on an error of predict() that load() is to blame for.
NO_MODEL = "load() returned None"


class InferenceError(Exception):
    """A request that failed; its text is what the client reads, the same on both transports."""

    def __init__(self, text: str):
        text = text.encode("utf-8", "replace").decode()
        super().__init__(shorten(text, LONGEST_TEXT))

    def about(self, subject: str) -> InferenceError:
        """The same error, its text led by what it is about: `input "features"`."""
        return type(self)(f"{subject}: {self}")


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
