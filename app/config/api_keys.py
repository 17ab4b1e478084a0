"""API keys from a file. Memory contains only their digests, so that keys cannot appear in logs."""

import hmac
import re
from base64 import b64decode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from app.protocol.errors import ConfigurationError, Unauthenticated

# Visible ASCII, which headers support, without the comma, which joins repeated headers. The minimum
# length prevents guessing: 16 hexadecimal digits are 64 bits.
_KEY = re.compile(rb"[!-+\--~]{16,1024}")
_EXPECTED_KEYS = (
    "Expected keys of 16 to 1024 visible ASCII characters without commas, one per line."
    " Run openssl rand -hex 32."
)


class ApiKeys:
    """The valid API keys."""

    def __init__(self, keys: Iterable[bytes]):
        self._digests = [sha256(key).digest() for key in set(keys)]

    def check(self, authorization: str | None, api_key: str | None) -> None:
        """Raise Unauthenticated unless a request has a valid key.

        The arguments are the values of its headers `Authorization` and `x-api-key`, or None. The
        values of a repeated header are joined with commas. It is rejected, because a proxy may have
        checked only one of them.
        """
        keys = []
        if api_key is not None:
            _check_is_single(api_key)
            keys.append(api_key.strip())
        if authorization is not None:
            keys.append(_key_in_authorization(authorization))
        if not keys:
            raise Unauthenticated(
                "missing API key", remedy="send Authorization: Bearer KEY, or x-api-key: KEY"
            )

        # The loops do not end at a match, so that their duration does not reveal which key matches.
        is_valid = False
        for key in keys:
            digest = sha256(key.encode(errors="replace")).digest()
            for valid_digest in self._digests:
                is_valid |= hmac.compare_digest(valid_digest, digest)
        if not is_valid:
            raise Unauthenticated("Invalid API key.")


def _check_is_single(value: str) -> None:
    """Raise Unauthenticated for the value of a repeated header. A single one has no comma."""
    if "," in value:
        raise Unauthenticated("repeated API key", remedy="send the header once")


def _key_in_authorization(header: str) -> str:
    """Return the token of HTTP Bearer authentication, or the password of HTTP Basic authentication.

    For other schemes, whose credentials may contain commas, return "", which is not a valid key.
    Raise Unauthenticated if the header is repeated.
    """
    scheme, _, credentials = header.partition(" ")
    scheme = scheme.lower()
    credentials = credentials.strip()
    if scheme not in ("bearer", "basic"):
        return ""

    _check_is_single(credentials)
    if scheme == "bearer":
        return credentials
    return _password(credentials)


def _password(credentials: str) -> str:
    """Return the password of HTTP Basic authentication, which browsers use.

    The user name is ignored. Return "" if the credentials are not base64 text.
    """
    try:
        user_and_password = b64decode(credentials, validate=True).decode()
    except ValueError:
        return ""
    _, _, password = user_and_password.partition(":")
    return password


def read_keys(path: Path) -> ApiKeys:
    """Read the keys from a file, one per line. Skip blank lines and comments (#).

    Raise ConfigurationError if the file has no key or an invalid key. The message does not contain
    the key.
    """
    keys = []
    problems = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if _KEY.fullmatch(key):
            keys.append(key)
        else:
            problems.append(f"invalid key in line {number}")
    if not keys and not problems:
        problems.append("no keys")

    if problems:
        raise ConfigurationError(
            f"API_KEYS_FILE={str(path)!r}: {', '.join(problems)}. {_EXPECTED_KEYS}"
        )
    return ApiKeys(keys)
