"""The gRPC port's sockets, as the system lists them; grpcio does not say."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress

# Linux has the first, with or without the second; macOS the second alone.
DESCRIPTORS = next(filter(os.path.isdir, ("/proc/self/fd", "/dev/fd")), "")
# What the system tells of bytes that are not acknowledged, and how few are none: refusals come all the time.
LEFT, SENT = struct.Struct("=i"), 2**14
# In Linux' tcp_info: milliseconds since the client's last bytes, and how many bytes have come of it.
TCP_INFO = getattr(socket, "TCP_INFO", 0)
SILENT, RECEIVED = (struct.Struct("=I"), 52), (struct.Struct("=Q"), 128)
INFO_SIZE = 136


def sockets_of(port: int, listening: bool = False) -> Iterator[socket.socket]:
    """The connections to the port, or the sockets that listen there; none where the system does not list them."""
    try:
        descriptors = os.listdir(DESCRIPTORS)
    except OSError:  # or this process has none left to look with
        return
    for descriptor in descriptors:
        with suppress(OSError):
            if stat.S_ISSOCK(os.stat(int(descriptor)).st_mode):
                with socket.socket(fileno=os.dup(int(descriptor))) as each:
                    found = bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                    if found == listening and each.getsockname()[1:2] == (port,):
                        yield each


def client_of(connection: socket.socket) -> str:
    """The client, as grpcio names it: "ipv4:127.0.0.1:4711", on a socket of IPv6 too, or "ipv6:%5B::1%5D:4711"."""
    host, port, _, scope = (*connection.getpeername(), 0, 0)[:4]
    plain = host.removeprefix("::ffff:")
    if ":" not in plain:
        return f"ipv4:{plain}:{port}"
    return f"ipv6:%5B{host}%25{scope}%5D:{port}" if scope else f"ipv6:%5B{host}%5D:{port}"


def is_sending(connection: socket.socket) -> bool:
    """Whether the system still has much that the client has not acknowledged."""
    try:
        return LEFT.unpack(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(LEFT.size)))[0] > SENT
    except OSError:
        return False


def received(port: int) -> dict[str, tuple[int, float]]:
    """By the client: the bytes that have come of it, ever, and for how many seconds none have."""
    found: dict[str, tuple[int, float]] = {}
    for connection in sockets_of(port) if TCP_INFO else ():
        with suppress(OSError, struct.error):
            info = connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, INFO_SIZE)
            ((size,), (silent,)) = (form.unpack_from(info, place) for form, place in (RECEIVED, SILENT))
            found[client_of(connection)] = size, silent / 1000
    return found
