"""What a client is told where its request is none."""

from __future__ import annotations

import json
from typing import Any

from app.errors import shorten


def refusal(status: str, text: str) -> bytes:
    """An answer of the service's own form, after which the connection ends."""
    body = json.dumps({"error": text}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    return head.encode() + b"\r\n\r\n" + body


class Page:
    """Stands for the socket that gunicorn writes a page to where `error` is wrong with a request; sends a refusal."""

    def __init__(self, sock: Any, error: BaseException):
        self.sock, self.error = sock, error

    def gettimeout(self) -> float:
        return 0.0

    def sendall(self, page: bytes) -> None:
        status = page.split(b" ", 1)[1].split(b"\r\n", 1)[0].decode()
        name = type(self.error).__name__
        text = f"internal error: {name}" if status.startswith("500") else shorten(str(self.error) or name, 200)
        self.sock.sendall(refusal(status, text))
