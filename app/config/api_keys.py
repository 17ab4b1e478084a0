"""API keys from a file. Only digests are kept, so that no key can come into a log."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from app.protocol.errors import ConfigurationError, Unauthenticated

# A key that a header can carry and that is hard to guess: 16 hexadecimal digits are 64 bits.
KEY = re.compile(rb"[!-~]{16,1024}")


class ApiKeys:
    """The valid API keys."""

    def __init__(self, keys: Iterable[bytes]):
        self._digests = [sha256(key).digest() for key in set(keys)]

    def check(self, authorization: str | None, api_key: str | None) -> None:
        """Raise Unauthenticated unless one of the headers `Authorization` and `x-api-key` has a valid key."""
        shown = [] if api_key is None else [api_key.strip()]
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            shown.append({"bearer": token.strip(), "basic": password(token.strip())}.get(scheme.lower(), ""))
        if not shown:
            raise Unauthenticated("missing API key", remedy="send Authorization: Bearer KEY, or x-api-key: KEY")
        digests = [sha256(each.encode(errors="replace")).digest() for each in shown]
        # sum() compares with all keys, so that the time does not depend on which one matches.
        if not sum(hmac.compare_digest(own, sent) for own in self._digests for sent in digests):
            raise Unauthenticated("Invalid API key.")


def password(token: str) -> str:
    """Return the password of HTTP Basic, which browsers ask for. The user name may be anything."""
    try:
        return b64decode(token, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def read_keys(path: Path) -> ApiKeys:
    """Read the keys from a file, one per line, without blank lines and comments (#).

    Raise ConfigurationError if the file has no key, or an invalid one. The message does not contain the key.
    """
    lines = enumerate(map(bytes.strip, path.read_bytes().splitlines()), 1)
    keys = {number: line for number, line in lines if line and not line.startswith(b"#")}
    invalid = [f"invalid key in line {number}" for number, key in keys.items() if not KEY.fullmatch(key)]
    if invalid or not keys:
        expected = "Expected keys of 16 to 1024 visible ASCII characters, one per line. Run openssl rand -hex 32."
        raise ConfigurationError(f"API_KEYS_FILE={str(path)!r}: {', '.join(invalid) or 'no keys'}. {expected}")
    return ApiKeys(keys.values())
