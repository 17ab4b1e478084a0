"""Closing a listening socket without losing whoever is at the door.

A client whose connection the system has taken, and the service has not, sends its request, and loses it where the
socket is closed. So new handshakes are ignored first, and who came before is let in; then it can be closed, and a
client that was ignored tries again, and is refused.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from contextlib import suppress

# Linux' own number (asm-generic/socket.h); Python has no name for it.
SO_ATTACH_FILTER = 26
# Classic BPF on a TCP header: a segment that begins a handshake (SYN, in the flags at 13) is dropped, others pass.
DROP_SYN = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in [(0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF)]
)


def ignore_newcomers(listener: socket.socket) -> None:
    """From now on no handshake begins, in any process that has the socket; does nothing where the system cannot."""
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(DROP_SYN, len(DROP_SYN))
    with suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(DROP_SYN) // 8, ctypes.addressof(program))
        )
