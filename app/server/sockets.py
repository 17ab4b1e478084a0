"""Sockets of clients, plain or with TLS, and listening sockets. grpc_service uses the functions too."""

from __future__ import annotations

import ctypes
import errno
import socket
import ssl
import struct
from contextlib import suppress

READ_BYTES = 2**16  # more than a TLS record
SO_ATTACH_FILTER = 26  # Linux's number (asm-generic/socket.h). Python has no name for it
# A filter on TCP headers (classic BPF): drop segments that begin a handshake (SYN, in the flags at 13).
DROP_SYN = struct.pack("=" + 4 * "HBBI", 0x30, 0, 0, 13, 0x45, 0, 1, 0x02, 0x06, 0, 0, 0, 0x06, 0, 0, 0xFFFFFFFF)


class PlainSocket:
    """A client's socket, which never waits. Every method may raise OSError."""

    needs_handshake = False

    def __init__(self, client: socket.socket):
        self.client = client
        client.setblocking(False)

    def read(self, size: int) -> bytes:
        """Return what has arrived, at most about `size` bytes, b"" at the end. Raise BlockingIOError for nothing."""
        return self.client.recv(size)

    def write(self, data: bytes | memoryview) -> int:
        """Send what can be sent at once. Return the number of bytes."""
        try:
            return self.client.send(data)
        except BlockingIOError:
            return 0

    def shutdown_write(self) -> None:
        """Send the end of all responses."""
        self.client.shutdown(socket.SHUT_WR)

    def read_raw(self, flags: int = 0) -> bytes | None:
        """Return what has arrived, without TLS: b"" at the end, or None if nothing has. Raise no OSError."""
        try:
            return socket.socket.recv(self.client, READ_BYTES, flags)
        except BlockingIOError:
            return None
        except OSError:
            return b""


class TlsSocket(PlainSocket):
    """A client's socket with TLS. A read returns a whole record, so that OpenSSL keeps nothing back from epoll."""

    client: ssl.SSLSocket
    needs_handshake = True

    def __init__(self, client: socket.socket, context: ssl.SSLContext):
        super().__init__(client)
        self.client = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)

    def read(self, size: int) -> bytes:
        try:
            if self.needs_handshake:
                self.client.do_handshake()
                self.needs_handshake = False
            return self.client.recv(READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def write(self, data: bytes | memoryview) -> int:
        sent, view = 0, memoryview(data)
        with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while sent < len(data):
                sent += self.client.send(view[sent:])
        return sent

    def shutdown_write(self) -> None:
        with suppress(OSError, ValueError):
            self.client.unwrap()  # sends TLS's own end, and does not wait for the client's
        socket.socket.shutdown(self.client, socket.SHUT_WR)


def find_port_problem(host: str, ports: dict[str, int]) -> str | None:
    """Return why a port is not available, or None. The keys of `ports` are names of settings."""
    for variable, port in ports.items():
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            socket.create_server(address, family=family).close()
        except OSError as error:
            subject = f"HOST={host}" if error.errno == errno.EADDRNOTAVAIL else f"{variable}={port}"
            remedy = f" Stop the other program or set {variable}." if error.errno == errno.EADDRINUSE else ""
            return f"{subject}: {str(error.strerror).partition(' (')[0]}.{remedy}"
    return None


def drop_new_handshakes(listener: socket.socket) -> None:
    """Ignore new handshakes, in all processes that have the socket, before it is closed.

    Otherwise, a client would lose its request if the system has accepted its connection, but the service has not. An
    ignored client tries again, and its connection is refused. Only Linux has this option.
    """
    program = ctypes.create_string_buffer(DROP_SYN, len(DROP_SYN))
    option = struct.pack("HL", len(DROP_SYN) // 8, ctypes.addressof(program))
    with suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, option)
