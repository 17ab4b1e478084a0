"""The body of a REST request, read whole from the WSGI server, past Werkzeug's stream.

That stream reads 8 KiB at a time, refuses a chunked body of just the limit, and takes a body cut short for a whole one.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.errors import ParseException

from app.connection import Outbox
from app.errors import InvalidInput, TooLarge
from app.inbox import Inbox, too_large

# Enough for a client that sent a little too much to read our answer; one that sends without end loses the connection.
DISCARDED_AT_MOST = 2**30
BLOCK = 2**16
PATIENCE_SECONDS = 2


def read_body(environ: dict[str, Any], limit: int) -> bytes:
    """The body. Raises TooLarge where it is over `limit` bytes, InvalidInput where it is shorter than it says."""
    text = environ.get("CONTENT_LENGTH") or ""
    if text:
        length = int(text)
        if length > limit:
            raise too_large(limit)
    elif environ.get("wsgi.input_terminated"):
        length = limit + 1
    else:
        return b""
    try:
        body = receive(environ["wsgi.input"], length)
        if body is None:
            body = environ["wsgi.input"].read(length)
    except TooLarge:
        raise
    except Exception as error:  # a server has kinds of its own for malformed chunks and lost clients
        raise InvalidInput(f"the body cannot be read: {type(error).__name__}") from error
    if len(body) > limit:
        raise too_large(limit)
    if text and len(body) < length:
        raise InvalidInput("the body is too short", expected="Content-Length bytes", got=f"{len(body)} of {length}")
    return body


def receive(stream: Any, length: int) -> bytes | None:
    """A body that our worker has gathered, past gunicorn's reader, which copies it twice and more.

    None where `stream` is another server's, or something of it has been read.
    """
    reader = getattr(stream, "reader", None)
    if not isinstance(reader, LengthReader) or reader.length != length or stream.buf.tell():
        return None
    if not isinstance(reader.unreader, Inbox):
        return None
    body = reader.unreader.take(length)
    if body is not None:
        reader.length = 0
    return body


def pass_over(body: Body) -> bool:
    """Reads what nobody has read of a body that our worker has gathered; says whether the next request begins there.

    gunicorn would do so for 64 KiB, and copy all that it holds for each block.
    """
    reader = body.reader
    try:
        if isinstance(reader, LengthReader):
            if reader.length:
                reader.read(reader.length)
        else:
            deque(reader.parser or (), maxlen=0)
    except (OSError, ParseException):  # a malformed chunk, say
        return False
    return not body.failed


def discard_body(environ: dict[str, Any]) -> None:
    """Reads what is left of the body, once the answer is out: a client that still sends would not read it.

    For servers that read as the application does; our worker has the body.
    """
    connection = environ.get("gunicorn.socket")
    if isinstance(connection, Outbox) or not environ.get("wsgi.input_terminated"):
        return
    if connection:
        connection.settimeout(PATIENCE_SECONDS)  # for a client that waits for our answer and sends no body at all
    try:
        for _ in range(DISCARDED_AT_MOST // BLOCK):
            if not environ["wsgi.input"].read(BLOCK):
                return
    except Exception:  # the same kinds; there is nothing left to read, and the answer is out
        return
