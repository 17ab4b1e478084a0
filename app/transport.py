"""Sockets: clients', plain or with TLS, by which no thread waits longer than a moment, and listening ones."""

from __future__ import annotations

import ctypes
import errno
import select
import socket
import ssl
import struct
import sys
from contextlib import suppress

from app.crew import Crew

BLOCK = 2**16
# A client that sends or reads quickly has the thread for so long, in which a large body or answer passes at once.
BRIEF = struct.pack("ll", 0, 20_000)  # a timeval: seconds and microseconds
# Linux's number (asm-generic/socket.h). Python has no name for it.
SO_ATTACH_FILTER = 26
# A filter on TCP headers (classic BPF): drop segments that begin a handshake (SYN, in the flags at 13).
DROP_SYN = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in [(0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF)]
)


class Plain:
    """`read` and `read_more` raise BlockingIOError where nothing is there; b"" is the end. Each raises OSError.

    The crew is told before its thread waits even for a moment.
    """

    is_new = False

    def __init__(self, client: socket.socket, crew: Crew):
        self.client, self.crew = client, crew
        client.setblocking(True)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            client.setsockopt(socket.SOL_SOCKET, option, BRIEF)

    def read(self) -> bytes:
        """What is there."""
        return self.client.recv(BLOCK, socket.MSG_DONTWAIT)

    def read_more(self, size: int) -> bytes:
        """`size` bytes, or what of them comes within a moment."""
        data = self.client.recv(size, socket.MSG_DONTWAIT)
        if len(data) == size or len(data) < BLOCK:
            return data
        self.crew.step_aside()
        with suppress(BlockingIOError):
            data += self.client.recv(size - len(data), socket.MSG_WAITALL)
        return data

    def write(self, data: bytes | memoryview) -> int:
        """Sends what can be sent at once, and says how many bytes that was."""
        try:
            return self.client.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def write_more(self, data: memoryview) -> int:
        """Sends what can be sent within a moment."""
        self.crew.step_aside()
        try:
            return self.client.send(data)
        except BlockingIOError:
            return 0

    def wait(self, event: int, seconds: float) -> bool:
        """Whether the socket can be read (select.POLLIN) or written (POLLOUT) within the time."""
        watch = select.poll()
        watch.register(self.client, event)
        with self.crew.waiting(self.client):
            return bool(watch.poll(max(0, int(seconds * 1000))))

    def finish(self) -> None:
        """Sends the end of all answers."""
        self.client.shutdown(socket.SHUT_WR)

    def discard(self) -> bool:
        """Reads past what the client sends yet; says whether it has not ended."""
        try:
            return socket.socket.recv(self.client, BLOCK, socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True


class Tls(Plain):
    """The same over TLS. A read is of a whole record, so that nothing is left where epoll cannot see it."""

    def __init__(self, client: socket.socket, crew: Crew, context: ssl.SSLContext):
        self.crew = crew
        client.setblocking(False)
        self.client: ssl.SSLSocket = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        self.is_new = True

    def read(self) -> bytes:
        try:
            if self.is_new:
                self.client.do_handshake()
                self.is_new = False
            return self.client.recv(BLOCK)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def read_more(self, size: int) -> bytes:
        self.crew.step_aside()
        parts = [self.read()]
        while parts[-1] and (size := size - len(parts[-1])) > 0 and len(parts) < BLOCK // 2**10:
            try:
                parts.append(self.read())
            except BlockingIOError:
                break
        return b"".join(parts)

    def write(self, data: bytes | memoryview) -> int:
        sent, view = 0, memoryview(data)
        try:
            while sent < len(data):
                sent += self.client.send(view[sent:])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        return sent

    def write_more(self, data: memoryview) -> int:
        return 0  # all that fits has been written

    def finish(self) -> None:
        with suppress(OSError, ValueError):
            self.client.unwrap()  # says so in TLS' own way, and does not wait for the answer
        socket.socket.shutdown(self.client, socket.SHUT_WR)


def tolerant(context: ssl.SSLContext) -> ssl.SSLContext:
    """`context`, to which what a client sends may end without TLS' own sign, and be answered by it."""
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    return context


def try_to_listen(host: str, port: int) -> None:
    """Raises OSError where nobody could listen there."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)


def find_port_problem(host: str, ports: dict[str, int]) -> str | None:
    """Return why nobody can listen on one of the ports, which have the names of settings. None if all are free."""
    for variable, port in ports.items():
        try:
            try_to_listen(host, port)
        except OSError as error:
            subject = f"HOST={host}" if error.errno == errno.EADDRNOTAVAIL else f"{variable}={port}"
            remedy = f"; stop that program, or set {variable}" if error.errno == errno.EADDRINUSE else ""
            return f"{subject}: {error.strerror}{remedy}"
    return None


def ignore_newcomers(listener: socket.socket) -> None:
    """Ignore new handshakes, in all processes that have the socket, before it is closed.

    Otherwise a client whose connection the system has accepted, and the service has not, would lose its request. A
    client that is ignored tries again and is refused. Do nothing on systems other than Linux.
    """
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(DROP_SYN, len(DROP_SYN))
    with suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(DROP_SYN) // 8, ctypes.addressof(program))
        )
