"""Request errors. Each transport maps the classes to statuses (R19, G1).

InferenceError
├── Unauthenticated     the API key is missing or invalid
├── InvalidInput        the request is malformed, or does not match the model
│   ├── InvalidRequest  all validation errors of a JSON body
│   └── NoBinaryForm    null in a tensor in binary form
├── NotFound            unknown model, version or path
├── PayloadTooLarge     the request exceeds MAX_REQUEST_BYTES
├── UnsupportedEncoding unknown Content-Encoding
├── ModelError          predict() raised an exception, or its result does not match METADATA
├── Unavailable         the model is not loaded, or the worker is stopping
├── Overloaded          the queue is full
├── DeadlineExceeded    deadline exceeded before predict() could start
│   └── PredictTimeout  predict() ran for longer than PREDICT_TIMEOUT_SECONDS
└── ClientDisconnected  the client disconnected before predict() started

An error has two messages: one for the client, and one for the log, without data from the client:

    Input "x": invalid shape. Expected [-1,4], got [1,3].
    Input: invalid shape. Expected [-1,4].
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Self, TypeVar

Status = TypeVar("Status")

# Maximum length of a message for the client. gRPC sends it as a percent-encoded header, and clients
# reject headers over 8 KiB.
MAX_TEXT = 500
# Maximum length of a value in a message, unless it is text.
MAX_VALUE_TEXT = 60
NOTHING = object()  # default of `got`, because None is a valid value
# A lowercase word of English at the start of a message, not a name such as predict().
_FIRST_WORD = re.compile(r"[a-z]+([\[ :,.]|$)")


class PathPart(NamedTuple):
    """A part of the request that an error is about, such as `input "x"`, for the two messages."""

    client_text: str
    log_text: str


class InferenceError(Exception):
    """A failed request. str() returns the message for the client, equal in both transports.

    The message is `Subject: problem. Expected X, got Y. Remedy.`, without empty parts. An empty
    problem results in `Invalid subject.` A message that consists only of a problem, such as the
    model's own, is not changed.

    - problem: the reason.
    - subject: the invalid part of the request. It can contain names declared in METADATA.
    - expected: the valid values.
    - got: the client's value, as JSON unless it is text. Only this part contains client data. The
      log omits it.
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
        self.problem = problem
        self.subject = subject
        self.expected = expected
        self.remedy = remedy
        # The text of the client's value, or None without one.
        self.got: str | None = None
        if isinstance(got, str):
            self.got = got[:MAX_TEXT] or '""'
        elif got is not NOTHING:
            self.got = format_value(got)
        # From the outermost part of the request to the innermost.
        self.path: list[PathPart] = []
        if subject:
            self.path.append(PathPart(subject, subject))

    def __str__(self) -> str:
        text = self._format(is_logged=False)
        valid_unicode = text.encode("utf-8", "replace").decode()
        return shorten(valid_unicode, MAX_TEXT)

    def log_text(self) -> str:
        """Return the message without data from the client."""
        return self._format(is_logged=True)

    def _format(self, is_logged: bool) -> str:
        if not (self.path or self.expected or self.got or self.remedy):
            return self.problem

        comparison = []
        if self.expected:
            comparison.append(f"expected {self.expected}")
        if self.got and not is_logged:
            comparison.append(f"got {self.got}")
        sentences = [self.reason(is_logged), ", ".join(comparison), self.remedy]
        return " ".join(to_sentence(sentence) for sentence in sentences if sentence)

    def reason(self, is_logged: bool = True) -> str:
        """Return the subject and the problem: `input "features": invalid shape`."""
        parts = []
        for part in self.path:
            parts.append(part.log_text if is_logged else part.client_text)
        problem = self.problem
        if not problem:
            innermost = parts.pop() if parts else "request"
            problem = f"invalid {innermost}"
        return ": ".join([*parts, problem])

    def about(self, kind: str, name: str | None = None, *, is_declared: bool = False) -> Self:
        """Return a copy whose subject begins with `kind "name"`: from `invalid shape`, it makes
        `Input "x": invalid shape`.

        Each caller adds the part of the request that it knows. The log contains the name only if
        METADATA declares it.
        """
        client_text = kind
        if name is not None:
            client_text = f'{kind} "{name[:MAX_TEXT]}"'
        log_text = client_text if is_declared else kind

        # copy.copy() would call __init__() of subclasses in predict.py with unknown parameters.
        error = type(self).__new__(type(self), *self.args)
        error.__dict__.update(self.__dict__)
        error.path = [PathPart(client_text, log_text), *self.path]
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
        texts = []
        for error in self.errors:
            texts.append(error.log_text() if is_logged else str(error))
        return " ".join(texts)


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
    """An error in a setting, in METADATA or in predict(). The service does not start."""


def to_sentence(text: str) -> str:
    """Add a period to `text`, and capitalize it unless it begins with a name such as predict()."""
    if _FIRST_WORD.match(text):
        text = text[0].upper() + text[1:]
    if text.endswith((".", "?", "…")):
        return text
    return f"{text}."


def format_value(value: object) -> str:
    """Return a string in double quotes, and another value as JSON.

    If JSON cannot represent it, return its repr(). A long value is truncated before it is
    formatted, because a client's value can have millions of elements.
    """
    if isinstance(value, str):
        return f'"{value[:MAX_TEXT]}"'
    excerpt = _Excerpt(MAX_VALUE_TEXT).of(value)
    try:
        return shorten(json.dumps(excerpt, ensure_ascii=False))
    except (TypeError, ValueError):
        return shorten(repr(excerpt))


class _Excerpt:
    """Copies the beginning of a value: a limited number of elements, and of characters in each.

    Each element is at least one character of the formatted value. With as many elements as the
    value may have characters, the truncated text is that of the whole value.
    """

    def __init__(self, max_elements: int):
        self._max_characters = max_elements
        self._remaining_elements = max_elements

    def of(self, value: Any) -> Any:
        self._remaining_elements -= 1
        if isinstance(value, str | bytes):
            return value[: self._max_characters]
        # Objects of other classes, such as those of predict(), have a repr() of their own.
        if type(value) is list:
            return self._of_elements(value)
        if type(value) is dict:
            return self._of_members(value)
        return value

    def _of_elements(self, elements: list[Any]) -> list[Any]:
        excerpt = []
        for element in elements:
            if self._remaining_elements <= 0:
                break
            excerpt.append(self.of(element))
        return excerpt

    def _of_members(self, members: dict[Any, Any]) -> dict[Any, Any]:
        excerpt = {}
        for name, member in members.items():
            if self._remaining_elements <= 0:
                break
            excerpt[self.of(name)] = self.of(member)
        return excerpt


def join_names(words: Iterable[Any]) -> str:
    """Join the quoted names for an error message."""
    return ", ".join(map(format_value, words)) or "none"


def shorten(text: str, limit: int = MAX_VALUE_TEXT) -> str:
    """Truncate `text` to `limit` characters."""
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"


def status_of(error: InferenceError, table: dict[type[InferenceError], Status]) -> Status:
    """Return the status of the error's class or of the nearest base class in `table`."""
    for error_class in type(error).__mro__:
        if error_class in table:
            return table[error_class]
    raise LookupError(type(error))
