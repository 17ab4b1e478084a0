"""What can go wrong with a request. No HTTP or gRPC number here: each transport owns a table from kind to status.

InferenceError
├── InvalidInput      the request is malformed, or does not fit the model
├── NotFound          no such model, version or path
├── TooLarge          the request is over MAX_REQUEST_BYTES
├── UnsupportedCoding the body's Content-Encoding is not understood
├── ModelError        predict() raised, or returned what METADATA does not declare
└── NotReady          the model is not loaded, or the service is stopping

SetupError stands beside them: the project itself is wrong, and the service does not start.
"""

from __future__ import annotations

# A gRPC status text travels in a header, percent-encoded, and headers over 8 KiB are refused.
LONGEST_TEXT = 500


class InferenceError(Exception):
    """A request that failed; its text is what the client reads, the same on both transports."""

    def __init__(self, text: str):
        text = text.encode("utf-8", "replace").decode()
        super().__init__(shorten(text, LONGEST_TEXT))

    def about(self, subject: str) -> InferenceError:
        """The same error, its text led by what it is about: `input "features"`."""
        return type(self)(f"{subject}: {self}")


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


class SetupError(Exception):
    """A setting, METADATA or predict() that cannot work; stops the start."""


def shorten(text: str, limit: int = 60) -> str:
    """`text`, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def kind_of(error: InferenceError, table: dict) -> object:
    """What a transport's `table` says of the error's class, or of the nearest class above it."""
    return next(table[cls] for cls in type(error).__mro__ if cls in table)
