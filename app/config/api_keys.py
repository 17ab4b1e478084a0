"""API keys from a file. Memory contains only their digests, so that keys cannot appear in logs."""

import hmac
import re
from base64 import b64decode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from app.protocol.errors import ConfigurationError, Unauthenticated

# Visible ASCII, which headers support. The minimum length prevents guessing: 16 hexadecimal digits are 64 bits.
KEY = re.compile(rb"[!-~]{16,1024}")


class ApiKeys:
    """The valid API keys."""

    def __init__(self, keys: Iterable[bytes]):
        self._digests = [sha256(key).digest() for key in set(keys)]

    def check(self, authorization: str | None, api_key: str | None) -> None:
        """Raise Unauthenticated unless the `Authorization` or the `x-api-key` header contains a valid key."""
        shown = [] if api_key is None else [api_key.strip()]
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            shown.append(
                {"bearer": token.strip(), "basic": password(token.strip())}.get(scheme.lower(), "")
            )
        if not shown:
            raise Unauthenticated(
                "missing API key", remedy="send Authorization: Bearer KEY, or x-api-key: KEY"
            )
        digests = [sha256(each.encode(errors="replace")).digest() for each in shown]
        # Unlike any(), sum() compares all keys, so that the duration does not reveal which key matches.
        if not sum(hmac.compare_digest(own, sent) for own in self._digests for sent in digests):
            raise Unauthenticated("Invalid API key.")


def password(token: str) -> str:
    """Return the password of HTTP Basic authentication, which browsers use. The user name is ignored."""
    try:
        return b64decode(token, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def read_keys(path: Path) -> ApiKeys:
    """Read the keys from a file, one per line. Skip blank lines and comments (#).

    Raise ConfigurationError if the file has no key or an invalid key. The message does not contain the key.
    """
    lines = enumerate(map(bytes.strip, path.read_bytes().splitlines()), 1)
    keys = {number: line for number, line in lines if line and not line.startswith(b"#")}
    invalid = [
        f"invalid key in line {number}" for number, key in keys.items() if not KEY.fullmatch(key)
    ]
    if invalid or not keys:
        expected = "Expected keys of 16 to 1024 visible ASCII characters, one per line. Run openssl rand -hex 32."
        raise ConfigurationError(
            f"API_KEYS_FILE={str(path)!r}: {', '.join(invalid) or 'no keys'}. {expected}"
        )
    return ApiKeys(keys.values())
