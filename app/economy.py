"""What our worker changes in gunicorn's HTTP: what it would find out anew for each request, bodies, and error pages."""

from __future__ import annotations

import json
import time
from collections import deque
from functools import lru_cache
from typing import Any

import gunicorn.http.wsgi
import gunicorn.util
from gunicorn.config import Config
from gunicorn.http import message
from gunicorn.http.body import Body, LengthReader
from gunicorn.http.errors import ParseException
from gunicorn.util import http_date

from app.errors import shorten
from app.inbox import Inbox


def settle(cfg: Config, server_name: str) -> None:
    """Make the settings of `cfg` plain attributes, which cannot change any more, and format the date once a second.

    `server_name` becomes the value of the header `Server`.
    """
    vars(cfg).update({name: setting.get() for name, setting in cfg.settings.items()})
    gunicorn.util.http_date = date
    gunicorn.http.wsgi.SERVER = server_name


def date(seconds: float | None = None) -> str:
    """The header Date, of now unless told."""
    return date_of(int(time.time() if seconds is None else seconds))


date_of = lru_cache(maxsize=1)(http_date)


class Request(message.Request):
    """gunicorn's; a client that may speak for others, by FORWARDED_ALLOW_IPS, is one as long as it is connected.

    A gunicorn that calls the method by another name asks for each request again.
    """

    unreader: Inbox
    body: Body

    def _peer_is_trusted_proxy(self) -> bool:
        inbox = self.unreader
        if inbox.is_trusted is None:
            inbox.is_trusted = super()._peer_is_trusted_proxy()
        return inbox.is_trusted

    def set_body_reader(self) -> None:
        super().set_body_reader()
        self.body = ReceivedBody(self.body.reader)


class ReceivedBody(Body):
    """A body that the inbox has received. gunicorn's reader would copy it twice or more."""

    def read(self, size: int | None = None) -> bytes:
        reader, body = self.reader, None
        if isinstance(reader, LengthReader) and reader.length == size and not self.buf.tell():
            body = reader.unreader.take(size)
        if body is None:
            return super().read(size)
        reader.length = 0
        return body

    def skip(self) -> bool:
        """Read what the application has not read. Return whether the next request starts there.

        gunicorn does so for 64 KiB, and copies all that it holds for each block.
        """
        reader = self.reader
        try:
            if isinstance(reader, LengthReader):
                if reader.length:
                    reader.read(reader.length)
            else:
                deque(reader.parser or (), maxlen=0)
        except (OSError, ParseException):  # a malformed chunk, say
            return False
        return not self.failed


def refusal(status: str, text: str) -> bytes:
    """Return a response in the form of all errors. The connection ends after it."""
    body = json.dumps({"error": text}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    return head.encode() + b"\r\n\r\n" + body


class Page:
    """Stands for the socket to which gunicorn writes an error page. It sends a refusal instead."""

    def __init__(self, sock: Any, error: BaseException):
        self.sock, self.error = sock, error

    def gettimeout(self) -> float:
        return 0.0

    def sendall(self, page: bytes) -> None:
        status = page.split(b" ", 1)[1].split(b"\r\n", 1)[0].decode()
        name = type(self.error).__name__
        text = f"internal error: {name}" if status.startswith("500") else shorten(str(self.error) or name, 200)
        self.sock.sendall(refusal(status, text))
