"""The head of a request: checks that llhttp does not make, and the environ of WSGI (PEP 3333).

make_environ() is a pure function. A proxy whose address the operator has listed is trusted: its
Rules contain the header fields with which it may set SCRIPT_NAME and the scheme.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from app.server.http_error import HttpError

# Repeated Host fields are joined with a comma, which this pattern rejects.
HOST = re.compile(r"[!$&'()*+;=%._~\[\]:0-9A-Za-z-]*")
ABSOLUTE_URI = re.compile(r"https?://([^/?#]+)([^#]*)", re.IGNORECASE)
# Methods that llhttp knows and this server rejects. SOURCE is a method of Icecast.
REJECTED_METHODS = ("CONNECT", "SOURCE")
# Keys of the environ without the prefix HTTP_.
CONTENT_KEYS = ("CONTENT_TYPE", "CONTENT_LENGTH")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules for the requests of a connection. Without a limit, the value is sys.maxsize.

    max_line_bytes: limit for the request line without its end
    max_fields: limit for the number of header and trailer fields
    max_field_bytes: limit for a field with its end
    max_body_bytes: limit for the body
    max_body_setting: name of that limit in the error message
    base_environ: part of the environ that all requests of the connection share
    trusted_names: accepted field names with underscores, as keys of the environ
    secure_schemes: the field values that mean HTTPS, by key of the environ
    accepts_head: Lifecycle.accepts_head()
    """

    max_line_bytes: int
    max_fields: int
    max_field_bytes: int
    max_body_bytes: int
    max_body_setting: str
    base_environ: dict[str, Any]
    trusted_names: frozenset[str]
    secure_schemes: dict[str, str]
    accepts_head: Callable[[dict[str, Any]], bool]

    def check_body_size(self, size: int) -> None:
        """Raise HttpError if a body of `size` bytes is too large."""
        if size > self.max_body_bytes:
            raise HttpError(
                413,
                f"Body too large. Expected at most {self.max_body_bytes} bytes"
                f" ({self.max_body_setting}).",
            )


def make_environ(
    rules: Rules,
    *,
    method: str,
    target: bytes,
    version: str,
    fields: Iterable[tuple[bytes, bytes]],
) -> dict[str, Any]:
    """Return the environ for a head that llhttp has parsed into these parts.

    Raise HttpError if a part is invalid.

    `version` is for example "1.1". HTTP/1.2 and later are treated as HTTP/1.1 (RFC 9110, 2.5). The
    environ does not contain wsgi.input yet. Call content_length() and expects_continue() for the
    fields about the body.
    """
    if not version.startswith("1."):
        raise HttpError(505, "HTTP version not supported. Expected HTTP/1.0 or HTTP/1.1.")
    if method in REJECTED_METHODS:
        raise HttpError(501, "Method not implemented.")

    environ = dict(rules.base_environ)
    _add_fields(environ, fields, rules.trusted_names)
    environ["REQUEST_METHOD"] = method
    is_http_1_0 = version == "1.0"
    environ["SERVER_PROTOCOL"] = "HTTP/1.0" if is_http_1_0 else "HTTP/1.1"

    host = environ.get("HTTP_HOST")
    is_missing = host is None and not is_http_1_0
    if is_missing or not HOST.fullmatch(host or ""):
        raise HttpError(400, "Missing, repeated or invalid Host header.")

    _set_target(environ, target.decode("latin-1"))
    _set_scheme(environ, rules.secure_schemes)
    return environ


def _add_fields(
    environ: dict[str, Any], fields: Iterable[tuple[bytes, bytes]], trusted_names: frozenset[str]
) -> None:
    """Add header fields. The values of repeated fields are joined (RFC 9110, 5.3)."""
    for name, value in fields:
        key = environ_key(name, trusted_names)
        if key is None:
            continue

        text = value.decode("latin-1").rstrip(" \t")
        # SCRIPT_NAME of a proxy replaces that of the environment.
        if key in environ and key != "SCRIPT_NAME":
            separator = "; " if key == "HTTP_COOKIE" else ","
            text = f"{environ[key]}{separator}{text}"
        environ[key] = text


# The cache contains only names of fields, of which clients use few. Without it, a head takes 2 us
# more.
@lru_cache(maxsize=1024)
def environ_key(name: bytes, trusted_names: frozenset[str]) -> str | None:
    """Return the key of a header field in the environ, or None if the field must be dropped.

    `X-Y` and `X_Y` would share one key, so a client could overwrite a field that a proxy has set.
    Names with an underscore are therefore dropped, except `trusted_names`.
    """
    key = name.decode("latin-1").upper().replace("-", "_")
    if b"_" in name:
        if key not in trusted_names:
            return None
        if key == "SCRIPT_NAME":  # the variable of this name, not HTTP_SCRIPT_NAME
            return key
    if key in CONTENT_KEYS:
        return key
    return f"HTTP_{key}"


def _set_target(environ: dict[str, Any], target: str) -> None:
    """Set the path and the query.

    An absolute URI replaces the header field Host (RFC 9112, 3.2.2).
    """
    environ["RAW_URI"] = target
    if not target.startswith("/"):
        uri = ABSOLUTE_URI.fullmatch(target)
        if uri and HOST.fullmatch(uri[1]):
            environ["HTTP_HOST"] = uri[1]
            target = uri[2]
        elif target != "*" or environ["REQUEST_METHOD"] != "OPTIONS":
            raise HttpError(
                400, "Invalid request target. Expected an absolute path, or an http or https URL."
            )
    if "#" in target:
        raise HttpError(400, "Invalid request target. Expected a target without a fragment (#).")

    path, _, environ["QUERY_STRING"] = target.partition("?")
    if "%" in path:
        path = unquote_to_bytes(path.encode("latin-1")).decode("latin-1")

    script_name = environ["SCRIPT_NAME"]
    if not script_name:
        environ["PATH_INFO"] = path or "/"
    elif f"{path}/".startswith(f"{script_name}/"):
        environ["PATH_INFO"] = path[len(script_name) :]
    else:
        raise HttpError(400, "Invalid path. Expected a path that starts with SCRIPT_NAME.")


def _set_scheme(environ: dict[str, Any], secure_schemes: dict[str, str]) -> None:
    """Set the scheme that a trusted proxy reports.

    If its fields contradict each other, one of them may come from its client, so the scheme is
    http.
    """
    scheme = None
    for key, secure_value in secure_schemes.items():
        value = environ.get(key)
        if value is None:
            continue
        if value != secure_value:
            scheme = "http"
        elif scheme is None:
            scheme = "https"
    if scheme is not None:
        environ["wsgi.url_scheme"] = scheme


def content_length(environ: dict[str, Any], rules: Rules) -> int | None:
    """Return the size of the body, which is 0 without a body, or None if the body is chunked.

    Raise HttpError if the body is too large, or its framing is not supported. llhttp has rejected
    Content-Length next to Transfer-Encoding, and values that are not numbers.
    """
    coding = environ.get("HTTP_TRANSFER_ENCODING")
    if coding is None:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length:
            rules.check_body_size(length)
        return length

    coding = coding.lower()
    if coding == "identity" or environ["SERVER_PROTOCOL"] == "HTTP/1.0":
        raise HttpError(400, "Invalid Transfer-Encoding. Expected chunked with HTTP/1.1.")
    if coding != "chunked":
        raise HttpError(501, "Transfer-Encoding not implemented. Expected chunked.")
    return None


def expects_continue(environ: dict[str, Any]) -> bool:
    """Return True if the client waits for 100 Continue before the body (RFC 9110, 10.1.1)."""
    expectation = environ.get("HTTP_EXPECT")
    if not expectation:
        return False
    if expectation.lower() != "100-continue":
        raise HttpError(417, "Invalid Expect header. Expected 100-continue.")
    return bool(environ["SERVER_PROTOCOL"] == "HTTP/1.1")
