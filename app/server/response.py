"""WSGI responses: start_response(), write() and serialization."""

import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from gunicorn.util import http_date

from app.server.request_parser import Request

# A status and header fields in Latin-1. Names of fields are tokens (RFC 9110, 5.6.2).
TEXT = r"[^\r\n\0\u0100-\U0010ffff]*"
HEAD = re.compile(rf"[2-9]\d\d(?: {TEXT})?\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: {TEXT}\r\n)*")
# Fields that the server sets itself (PEP 3333).
HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "trailer",
    "te",
    "proxy-connection",
}
JOIN_BYTES = 2**16  # larger pieces are sent separately from the head, to avoid a copy
format_date = lru_cache(maxsize=1)(http_date)  # of the current second


class Response:
    """Response to one request. `send` sends bytes to the client, or raises OSError.

    gunicorn's hook post_request reads `status`, `headers` and `sent`, the size of the body in bytes.
    """

    def __init__(self, request: Request, server_name: str, send: Callable[[bytes], None]):
        self.version, self.keep_alive = request.version, request.keep_alive
        self.server_name, self._send = server_name, send
        self.has_body = request.method != "HEAD"
        self.has_sent_head = self.is_chunked = False
        self.status, self.sent = "", 0
        self.headers: list[tuple[str, str]] = []
        self.length: int | None = None  # Content-Length, if known

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        """Set the status and the header fields (start_response() of WSGI)."""
        if self.has_sent_head and exc_info:
            raise exc_info[1]
        if self.status and not exc_info:
            raise RuntimeError("start_response() was called twice")
        self.status, self.headers, self.length, self.is_chunked, self.sent = (
            status,
            [],
            None,
            False,
            0,
        )
        for name, value in headers:
            key = name.lower()
            if key == "content-length":
                self.length = int(value)
            elif key == "connection" and value.strip().lower() == "close":
                self.keep_alive = False
            elif key not in HOP_BY_HOP:
                self.headers.append((name, value))
        return self.write

    def respond(self, body: Iterable[bytes]) -> None:
        """Send the iterable that the application returned. For a list or tuple, set Content-Length."""
        is_known = isinstance(body, list | tuple) and self.has_body and not self.has_sent_head
        if is_known and self.length is None:
            self.length = sum(map(len, body))
        for piece in body:
            if piece:
                self.write(piece)
        if not self.has_sent_head:
            self.write(b"")
        if self.is_chunked:
            self._send(b"0\r\n\r\n")
        elif self.has_body and self.sent < (self.length or 0):
            self.keep_alive = False  # the client still expects the rest

    def write(self, data: bytes) -> None:
        """Send the head if necessary, and a piece of the body (write() of WSGI)."""
        head = b"" if self.has_sent_head else self._make_head()
        if self.length is not None:
            data = data[: self.length - self.sent]
        if not self.has_body:
            data = b""
        self.sent += len(data)
        if self.is_chunked and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        pieces = [head, data] if len(data) > JOIN_BYTES else [head + data]
        self.has_sent_head = True
        for piece in filter(None, pieces):
            self._send(piece)

    def _make_head(self) -> bytes:
        """Return the status line and the header fields. Select the framing of the body."""
        if not self.status:
            raise RuntimeError("the application did not call start_response()")
        fields = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        lines = f"{self.status}\r\n{fields}"
        if (
            (self.length or 0) < 0
            or not HEAD.fullmatch(lines)
            or lines.count("\r\n") != 1 + len(self.headers)
        ):
            raise ValueError("the status or a header field of the response is invalid")
        framing = ""
        if self.status.startswith(("204", "304")):
            self.has_body = False
        elif self.length is not None:
            framing = f"Content-Length: {self.length}\r\n"
        elif self.version == (1, 1):
            framing = "Transfer-Encoding: chunked\r\n"
            self.is_chunked = self.has_body
        else:
            self.keep_alive = False
        return (
            f"HTTP/1.{self.version[1]} {self.status}\r\nServer: {self.server_name}\r\n"
            f"Date: {format_date(int(time.time()))}\r\nConnection: {'keep-alive' if self.keep_alive else 'close'}\r\n"
            f"{framing}{fields}\r\n"
        ).encode("latin-1")
