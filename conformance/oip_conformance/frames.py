"""Minimal HTTP/2 client (RFC 9113) for gRPC calls that grpcio does not send.

A frame has a head of nine bytes: the length of its payload (3 bytes), type, flags, and the number
of its stream (4 bytes). A call is a stream. This client reads no header fields of responses, so it
knows the response message of a call, but not its status.
"""

from __future__ import annotations

import socket
import struct
from enum import IntEnum
from typing import Any

from oip_conformance.client import TIMEOUT_SECONDS, LastExchange
from oip_conformance.texts import show_bytes

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD_LENGTH = 9
# A gRPC message follows one byte for its compression, and four bytes for its length.
MESSAGE_PREFIX_LENGTH = 5
# Flags. HEADERS and DATA have END_STREAM, SETTINGS and PING have ACK.
NO_FLAGS = 0
END_STREAM = 1
ACK = 1
END_HEADERS = 4
# The error code of RST_STREAM for a call that the client cancels.
CANCEL = 8


class Frame(IntEnum):
    """Types of frames."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7


class Connection:
    """A connection to the gRPC server at `address`."""

    def __init__(
        self,
        address: str,
        timeout: float = TIMEOUT_SECONDS,
        last_exchange: LastExchange | None = None,
    ):
        host, _, port = address.rpartition(":")
        self.authority = address
        self.last_exchange = last_exchange or LastExchange()
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(PREFACE)
        self.send(Frame.SETTINGS, NO_FLAGS, stream=0, payload=b"")

    def send(self, frame_type: Frame, flags: int, *, stream: int, payload: bytes) -> None:
        length = struct.pack(">I", len(payload))[1:]
        head = length + struct.pack(">BBI", frame_type, flags, stream)
        self.socket.sendall(head + payload)

    def call(self, stream: int, path: str, *, message: bytes | None, timeout: str) -> None:
        """Start a call. If `message` is None, leave the call open."""
        text = f"{path}, grpc-timeout: {timeout}\n{show_bytes(message or b'')}"
        self.last_exchange.record_request(text.strip())
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": self.authority,
            "te": "trailers",
            "content-type": "application/grpc",
            "grpc-timeout": timeout,
        }
        headers = bytearray()
        for name, value in fields.items():
            headers += header_field(name, value)
        self.send(Frame.HEADERS, END_HEADERS, stream=stream, payload=bytes(headers))
        if message is not None:
            prefix = struct.pack(">BI", 0, len(message))
            self.send(Frame.DATA, END_STREAM, stream=stream, payload=prefix + message)

    def reset(self, stream: int) -> None:
        """Cancel a call."""
        payload = struct.pack(">I", CANCEL)
        self.send(Frame.RST_STREAM, NO_FLAGS, stream=stream, payload=payload)

    def end_of(self, stream: int) -> bytes:
        """Wait for the end of the call. Return its response message, or b"" if it has none."""
        data = b""
        while True:
            head = self.file.read(FRAME_HEAD_LENGTH)
            assert len(head) == FRAME_HEAD_LENGTH, "the server closed the connection"
            length = int.from_bytes(head[:3], "big")
            frame_type, flags, frame_stream = struct.unpack(">BBI", head[3:])
            payload = self.file.read(length)

            assert frame_type != Frame.GOAWAY, (
                f"the server closed the connection with GOAWAY: {payload!r}"
            )
            if not flags & ACK:
                self.acknowledge(frame_type, payload)
            if frame_stream != stream:
                continue
            if frame_type == Frame.RST_STREAM:
                return data[MESSAGE_PREFIX_LENGTH:]
            if frame_type == Frame.DATA:
                data += payload
            if frame_type in (Frame.DATA, Frame.HEADERS) and flags & END_STREAM:
                return data[MESSAGE_PREFIX_LENGTH:]

    def acknowledge(self, frame_type: int, payload: bytes) -> None:
        """Acknowledge a frame of SETTINGS or PING. Other types have no acknowledgment."""
        if frame_type == Frame.SETTINGS:
            self.send(Frame.SETTINGS, ACK, stream=0, payload=b"")
        elif frame_type == Frame.PING:
            self.send(Frame.PING, ACK, stream=0, payload=payload)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()
        self.socket.close()


def header_field(name: str, value: str) -> bytes:
    """Return a literal header field without indexing (RFC 7541, 6.2.2)."""
    field = bytearray(b"\0")
    for text in (name, value):
        field.append(len(text))
        field += text.encode()
    return bytes(field)
