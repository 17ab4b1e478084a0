"""The gRPC port's sockets, as the system lists them. grpcio does not give access to them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress

# On Linux the first exists, on macOS the second.
DESCRIPTORS = next(filter(os.path.isdir, ("/proc/self/fd", "/dev/fd")), "")


def sockets_of(port: int, listening: bool = False) -> Iterator[socket.socket]:
    """Return the connections to the port, or the sockets that listen there, if the system lists them."""
    try:
        descriptors = os.listdir(DESCRIPTORS)
    except OSError:  # also if this process has no descriptor left to look with
        return
    for descriptor in descriptors:
        with suppress(OSError):
            if stat.S_ISSOCK(os.stat(int(descriptor)).st_mode):
                with socket.socket(fileno=os.dup(int(descriptor))) as each:
                    found = bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                    if found == listening and each.getsockname()[1:2] == (port,):
                        yield each


def client_of(connection: socket.socket) -> str:
    """Return the client in the form of grpcio's peer(): "ipv4:127.0.0.1:4711" or "ipv6:%5B::1%5D:4711"."""
    host, port, _, scope = (*connection.getpeername(), 0, 0)[:4]
    plain = host.removeprefix("::ffff:")
    if ":" not in plain:
        return f"ipv4:{plain}:{port}"
    return f"ipv6:%5B{host}%25{scope}%5D:{port}" if scope else f"ipv6:%5B{host}%5D:{port}"
