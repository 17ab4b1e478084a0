"""Parsers of settings. Each converts the text of an environment variable to a value.

A parser is a function, or an object that is called like one. If the text is invalid, it raises
ValueError with a description of the valid values, which read_settings() puts into its message:

    >>> WholeNumber(1, 65535)("0")
    ValueError: a whole number from 1 to 65535

    HTTP_PORT: invalid value. Expected a whole number from 1 to 65535, got '0'.
"""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

_ON = ("on", "1", "true", "yes")
_OFF = ("off", "0", "false", "no")


@dataclass(frozen=True)
class Number:
    """Parses a number from `low` to `high`."""

    low: float
    high: float
    noun: ClassVar[str] = "number"
    convert: ClassVar[type[int] | type[float]] = float

    def __call__(self, text: str) -> float:
        expected = f"a {self.noun} from {self.low} to {self.high}"
        try:
            number = self.convert(text)
        except ValueError:
            raise ValueError(expected) from None
        if not self.low <= number <= self.high:  # also NaN
            raise ValueError(expected)
        return number


class WholeNumber(Number):
    """Parses an integer from `low` to `high`."""

    noun = "whole number"
    convert = int


class OneOf:
    """Parses one of some words. Upper and lower case are the same."""

    def __init__(self, *words: str):
        self._words = words

    def __call__(self, text: str) -> str:
        for word in self._words:
            if text.lower() == word.lower():
                return word
        raise ValueError(" or ".join(self._words))


@dataclass(frozen=True)
class Names:
    """Parses one or several names, each of which must match `pattern`.

    - expected: the description of the valid names.
    - separator: the pattern of the text between two names.
    """

    pattern: str
    expected: str
    separator: str = r"[,\s]+"

    def __call__(self, text: str) -> tuple[str, ...]:
        names = re.split(self.separator, text.strip(", "))
        for name in names:
            if not re.fullmatch(self.pattern, name):
                raise ValueError(self.expected)
        return tuple(names)


def on_off(text: str) -> bool:
    """Parse a switch."""
    word = text.lower()
    if word in _ON:
        return True
    if word in _OFF:
        return False
    raise ValueError("on or off")


def address(text: str) -> str:
    """Parse an IP address or a host name, which must resolve."""
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        raise ValueError("an address of this machine, such as 0.0.0.0, 127.0.0.1 or ::") from None
    return text


def directory(text: str) -> Path:
    """Parse the path of a directory, which must exist."""
    if not os.path.isdir(text):
        raise ValueError("a directory that exists")
    return Path(text).resolve()


def writable_directory(text: str) -> Path:
    """Parse the path of a directory, which must exist and be writable."""
    if not os.path.isdir(text) or not os.access(text, os.W_OK):
        raise ValueError("a directory that exists and is writable")
    return Path(text).resolve()


def readable_file(text: str) -> Path:
    """Parse the path of a file, which must be readable.

    Links are not resolved, because Kubernetes updates a secret by replacing links.
    """
    if not os.path.isfile(text) or not os.access(text, os.R_OK):
        raise ValueError("a file that exists and that this user may read")
    return Path(text).absolute()
