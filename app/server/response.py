"""WSGI responses: start_response(), write() and serialization (PEP 3333)."""

import re
import time
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Any

from gunicorn.util import http_date

from app.server.request_parser import Request

# A status and header fields in Latin-1. Names of fields are tokens (RFC 9110, 5.6.2).
TEXT = r"[^\r\n\0\u0100-\U0010ffff]*"
HEAD = re.compile(rf"[2-9]\d\d(?: {TEXT})?\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: {TEXT}\r\n)*")
# Fields that the server sets itself: those of the connection (PEP 3333), and Date and Server.
SERVER_FIELDS = {
    "connection",
    "date",
    "server",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "trailer",
    "te",
    "proxy-connection",
}
# Larger pieces are sent separately from the head, to avoid a copy.
JOIN_BYTES = 2**16
format_date = lru_cache(maxsize=1)(http_date)  # of the current second


class Framing(Enum):
    """How the client finds the end of a response (RFC 9112, 6.3)."""

    NO_BODY = "at the end of the head"
    LENGTH = "after Content-Length bytes"
    CHUNKED = "after a chunk without content"
    CLOSE = "at the end of the connection"


# As globals, because Python 3.11 takes 0.1 us for each access to a member of an Enum.
NO_BODY, LENGTH, CHUNKED, CLOSE = Framing


class Response:
    """Response to one request. Only the thread that handles the request uses it.

    gunicorn's hook post_request reads `status`, `headers` and `sent`.

    keep_alive: True if another request can follow
    length: Content-Length, or None if it is unknown
    sent: number of bytes of the body that were sent
    framing: None until the head is sent
    """

    def __init__(
        self,
        request: Request,
        *,
        server_name: str,
        send: Callable[[bytes], None],
        keep_alive: bool,
    ):
        """Initialize a response. `send` sends bytes to the client, or raises OSError."""
        self.request = request
        self.server_name = server_name
        self.keep_alive = keep_alive
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.length: int | None = None
        self.sent = 0
        self.framing: Framing | None = None
        self._send = send

    @property
    def has_sent_head(self) -> bool:
        return self.framing is not None

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        """Set the status and the header fields (start_response() of WSGI)."""
        if self.has_sent_head and exc_info:
            raise exc_info[1]
        if self.status and not exc_info:
            raise RuntimeError("start_response() was called twice")

        self.status = status
        self.headers = []
        self.length = None
        for name, value in headers:
            key = name.lower()
            if key == "content-length":
                self.length = int(value)
            elif key == "connection" and value.strip().lower() == "close":
                self.keep_alive = False
            elif key not in SERVER_FIELDS:
                self.headers.append((name, value))
        return self.write

    def respond(self, body: Iterable[bytes]) -> None:
        """Send the iterable that the application returned.

        For a list or tuple, set Content-Length.
        """
        is_complete = isinstance(body, list | tuple) and not self.has_sent_head
        # A response to HEAD must not state a length that the response to GET does not have (RFC
        # 9110, 8.6).
        if is_complete and self.length is None and self.request.method != "HEAD":
            self.length = sum(map(len, body))

        for piece in body:
            if piece:
                self.write(piece)
        if not self.has_sent_head:
            self.write(b"")

        if self.framing is CHUNKED:
            self._send(b"0\r\n\r\n")
        elif self.framing is LENGTH and self.sent < (self.length or 0):
            self.keep_alive = False  # the client still expects the rest

    def write(self, data: bytes) -> None:
        """Send the head if necessary, and a piece of the body (write() of WSGI)."""
        framing = self.framing
        head = b""
        if framing is None:
            framing = self._framing_for_get()
            if framing is CLOSE:
                self.keep_alive = False
            head = self._make_head(framing)
            if self.request.method == "HEAD":
                framing = NO_BODY

        if framing is NO_BODY:
            data = b""
        elif self.length is not None:
            data = data[: self.length - self.sent]
        size = len(data)
        if framing is CHUNKED and data:
            data = b"%x\r\n%b\r\n" % (size, data)
        pieces = [head, data] if size > JOIN_BYTES else [head + data]

        # An exception above, for example because `data` is a str, leaves the head unsent, so it can
        # still be replaced.
        self.framing = framing
        self.sent += size
        for piece in pieces:
            if piece:
                self._send(piece)

    def close_connection(self) -> None:
        """Let no request follow."""
        self.keep_alive = False

    def _framing_for_get(self) -> Framing:
        """Return the framing if the request is not HEAD. The response to HEAD has the same head."""
        if self.status.startswith(("204", "304")):
            return NO_BODY
        if self.length is not None:
            return LENGTH
        if self.request.version == (1, 1):
            return CHUNKED
        return CLOSE

    def _make_head(self, framing: Framing) -> bytes:
        """Return the status line and the header fields.

        Raise ValueError if the application's part is invalid.
        """
        if not self.status:
            raise RuntimeError("the application did not call start_response()")

        fields = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        # The pattern accepts a status or a field that contains complete lines. The number of lines
        # does not.
        lines = f"{self.status}\r\n{fields}"
        has_extra_lines = lines.count("\r\n") != 1 + len(self.headers)
        has_negative_length = self.length is not None and self.length < 0
        if has_negative_length or has_extra_lines or not HEAD.fullmatch(lines):
            raise ValueError("the status or a header field of the response is invalid")

        framing_field = ""
        if framing is LENGTH:
            framing_field = f"Content-Length: {self.length}\r\n"
        elif framing is CHUNKED:
            framing_field = "Transfer-Encoding: chunked\r\n"
        head = (
            f"HTTP/1.{self.request.version[1]} {self.status}\r\n"
            f"Server: {self.server_name}\r\n"
            f"Date: {format_date(int(time.time()))}\r\n"
            f"Connection: {'keep-alive' if self.keep_alive else 'close'}\r\n"
            f"{framing_field}{fields}\r\n"
        )
        return head.encode("latin-1")
