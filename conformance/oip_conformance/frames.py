"""Minimal HTTP/2 client (RFC 9113) for gRPC calls that grpcio does not send."""

from __future__ import annotations

import socket
import struct
from typing import Any

from oip_conformance.client import TIMEOUT_SECONDS, LastExchange, shown

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CANCEL = 8


class Connection:
    """A connection to the gRPC server at `address`."""

    def __init__(
        self, address: str, timeout: float = TIMEOUT_SECONDS, last: LastExchange | None = None
    ):
        host, _, port = address.rpartition(":")
        self.last = last or LastExchange()
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout)
        self.file = self.socket.makefile("rb")
        self.authority = address
        self.socket.sendall(PREFACE)
        self.send(SETTINGS, 0, 0, b"")

    def send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.socket.sendall(
            struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
        )

    def call(self, stream: int, path: str, message: bytes | None, timeout: str) -> None:
        """Start a call. If `message` is None, leave the call open."""
        self.last.request = f"{path}, grpc-timeout: {timeout}\n{shown(message or b'')}".strip()
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": self.authority,
            "te": "trailers",
            "content-type": "application/grpc",
            "grpc-timeout": timeout,
        }
        self.send(
            HEADERS, END_HEADERS, stream, b"".join(literal(*field) for field in fields.items())
        )
        if message is not None:
            self.send(DATA, END_STREAM, stream, struct.pack(">BI", 0, len(message)) + message)

    def reset(self, stream: int) -> None:
        self.send(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))

    def end_of(self, stream: int) -> bytes:
        """Wait for the end of the call. Return its response message, or b"" if it ends without a message."""
        data = b""
        while True:
            head = self.file.read(9)
            assert len(head) == 9, "the server closed the connection"
            length = int.from_bytes(head[:3], "big")
            kind, flags, source = struct.unpack(">BBI", head[3:])
            payload = self.file.read(length)
            assert kind != GOAWAY, f"the server closed the connection with GOAWAY: {payload!r}"
            if kind in (SETTINGS, PING) and not flags & ACK:
                self.send(kind, ACK, 0, payload if kind == PING else b"")
            if source == stream and kind == DATA:
                data += payload
            if source == stream and (
                kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM)
            ):
                return data[5:]

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()
        self.socket.close()


def literal(name: str, value: str) -> bytes:
    """Return a literal header field without indexing (RFC 7541, 6.2.2)."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))
