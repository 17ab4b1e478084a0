"""The body of a REST request, read whole from the WSGI server, past Werkzeug's stream.

That stream reads 8 KiB at a time, refuses a chunked body of just the limit, and takes a body cut short for a whole one.
"""

from __future__ import annotations

from typing import Any

from app.errors import InvalidInput, TooLarge

# Enough for a client that sent a little too much to read our answer; one that sends without end loses the connection.
DISCARDED_AT_MOST = 2**30
BLOCK = 2**16
PATIENCE_SECONDS = 2


def read_body(environ: dict[str, Any], limit: int) -> bytes:
    """The body. Raises TooLarge where it is over `limit` bytes, InvalidInput where it is shorter than it says."""
    text = environ.get("CONTENT_LENGTH") or ""
    if text:
        length = int(text)
    elif environ.get("wsgi.input_terminated"):
        length = limit + 1
    else:
        return b""
    if length > limit and text:
        raise too_large(limit)
    try:
        body: bytes = environ["wsgi.input"].read(length)
    except Exception as error:  # a server has kinds of its own for malformed chunks and lost clients
        raise InvalidInput(f"the body cannot be read: {type(error).__name__}") from error
    if len(body) > limit:
        raise too_large(limit)
    if text and len(body) < length:
        raise InvalidInput(f"the body is cut short: Content-Length is {length}, got {len(body)} bytes")
    return body


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes")


def discard_body(environ: dict[str, Any]) -> None:
    """Reads what is left of the body, once the answer is out: a client that still sends would not read it."""
    if not environ.get("wsgi.input_terminated"):
        return
    if connection := environ.get("gunicorn.socket"):
        connection.settimeout(PATIENCE_SECONDS)  # for a client that waits for our answer and sends no body at all
    try:
        for _ in range(DISCARDED_AT_MOST // BLOCK):
            if not environ["wsgi.input"].read(BLOCK):
                return
    except Exception:  # the same kinds; there is nothing left to read, and the answer is out
        return
