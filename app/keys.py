"""API keys, from a file: whoever asks for more than a probe or metrics must show one.

Only digests are held, so that no key can come into a log, and every comparison is of texts of one length.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from app.errors import SetupError, Unauthenticated

# What a header can carry, and nobody guesses: 16 characters of hexadecimal digits are 64 bits.
KEY = re.compile(rb"[!-~]{16,1024}")


class Keys:
    """The keys that open the service."""

    def __init__(self, keys: Iterable[bytes]):
        self._digests = [sha256(key).digest() for key in set(keys)]

    def check(self, authorization: str | None, api_key: str | None) -> None:
        """Raises Unauthenticated unless one of the two headers' values, `Authorization` and `x-api-key`, has a key."""
        shown = []
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            shown.append(SCHEMES.get(scheme.lower(), no_key)(token.strip()))
        if api_key is not None:
            shown.append(api_key.strip())
        if not shown:
            raise Unauthenticated("missing API key", remedy="send Authorization: Bearer KEY, or x-api-key: KEY")
        if not any(self.has(text) for text in shown):
            raise Unauthenticated("invalid API key")

    def has(self, text: str) -> bool:
        """Whether `text` is a key; it takes as long for each."""
        digest, found = sha256(text.encode(errors="replace")).digest(), False
        for each in self._digests:
            found |= hmac.compare_digest(digest, each)
        return found


def password(token: str) -> str:
    """The key of HTTP Basic, what browsers ask people for: the password, whoever the user is."""
    try:
        return b64decode(token, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def no_key(token: str) -> str:
    return ""


SCHEMES: dict[str, Callable[[str], str]] = {"bearer": str, "basic": password}


def read_keys(path: Path) -> Keys:
    """The keys in the file, one a line; blank lines and those that begin with # are not keys.

    Raises SetupError where there is none, or where one is too short or what no header carries; it shows no key.
    """
    keys = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if not KEY.fullmatch(key):
            raise SetupError(
                f"API_KEYS_FILE={str(path)!r}: line {number}: expected a key of 16 to 1024 characters, each of them "
                "a letter, digit or sign of ASCII; `openssl rand -hex 32` makes one"
            )
        keys.append(key)
    if not keys:
        raise SetupError(f"API_KEYS_FILE={str(path)!r}: expected a key a line, got none; unset it to need no keys")
    return Keys(keys)
