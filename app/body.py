"""The body of a REST request, read whole from the WSGI server, past Werkzeug's stream.

That stream reads 8 KiB at a time, rejects a chunked body of exactly the limit, and accepts a truncated body.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from app.errors import InvalidInput, TooLarge
from app.inbox import too_large

# Limit of the rest of a body that is read after an error response. A client that sends more loses the connection.
MAX_DISCARDED = 2**30
BLOCK = 2**16
# Limit of the wait for a client that reads the error response and sends nothing.
WAIT_SECONDS = 2


def read_body(environ: dict[str, Any], limit: int) -> bytes:
    """Return the body. Raise TooLarge if it has more than `limit` bytes, InvalidInput if it is truncated."""
    text = environ.get("CONTENT_LENGTH") or ""
    if not text and not environ.get("wsgi.input_terminated"):
        return b""
    length = int(text) if text else limit + 1
    if text and length > limit:
        raise too_large(limit)
    try:
        body = environ["wsgi.input"].read(length)
    except TooLarge:
        raise
    except Exception as error:  # each server has its own exceptions for malformed chunks and lost clients
        raise InvalidInput(f"the body cannot be read: {type(error).__name__}") from error
    if len(body) > limit:
        raise too_large(limit)
    if text and len(body) < length:
        raise InvalidInput("the body is too short", expected="Content-Length bytes", got=f"{len(body)} of {length}")
    return body


def discard_body(environ: dict[str, Any]) -> None:
    """Read the rest of the body after an error response. Otherwise a client that still sends could not read it."""
    if not environ.get("wsgi.input_terminated"):
        return
    if connection := environ.get("gunicorn.socket"):
        connection.settimeout(WAIT_SECONDS)
    with suppress(Exception):  # nothing is left to read, or the client has disconnected
        for _ in range(MAX_DISCARDED // BLOCK):
            if not environ["wsgi.input"].read(BLOCK):
                return
