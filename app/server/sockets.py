"""Client sockets with and without TLS. Helpers for listening sockets, also for grpc_service."""

import ctypes
import errno
import socket
import ssl
import struct
import sys
from contextlib import suppress

READ_BYTES = 2**14  # a TLS record. Large bodies are read in larger pieces
# Options of Linux that Python's socket module does not have.
SO_ATTACH_FILTER = 26
IP_MINTTL = 21
IPV6_MINHOPCOUNT = 73
MAX_TTL = 255
# Classic BPF filter for TCP headers: drop SYN segments (flag 0x02 in byte 13).
# Each instruction has a code, two relative jumps (if true, if false), and an operand.
DROP_SYN_INSTRUCTIONS = [
    (0x30, 0, 0, 13),  # load byte 13
    (0x45, 0, 1, 0x02),  # if it has the flag SYN, continue. Otherwise, skip one instruction
    (0x06, 0, 0, 0),  # drop the segment
    (0x06, 0, 0, 0xFFFFFFFF),  # accept the segment
]
DROP_SYN = b"".join(struct.pack("=HBBI", *fields) for fields in DROP_SYN_INSTRUCTIONS)


class PlainSocket:
    """Nonblocking client socket. All methods except read_raw() can raise OSError."""

    needs_handshake = False

    def __init__(self, client: socket.socket):
        self.client = client
        client.setblocking(False)

    def read(self, size: int) -> bytes:
        """Return at most about `size` available bytes, or b"" at EOF.

        Raise BlockingIOError if no data is available.
        """
        return self.client.recv(size)

    def write(self, data: bytes | memoryview) -> int:
        """Send without blocking. Return the number of bytes sent."""
        try:
            return self.client.send(data)
        except BlockingIOError:
            return 0

    def shutdown_write(self) -> None:
        """Close the sending side."""
        self.client.shutdown(socket.SHUT_WR)

    def read_raw(self, flags: int = 0) -> bytes | None:
        """Return available bytes without decryption, or None if no data is available.

        At EOF and after an error, return b"".
        """
        try:
            return socket.socket.recv(self.client, READ_BYTES, flags)
        except BlockingIOError:
            return None
        except OSError:
            return b""


class TlsSocket(PlainSocket):
    """Client socket with TLS.

    A read returns a whole record, because epoll cannot report data in OpenSSL's buffer.
    """

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
        size = 0
        view = memoryview(data)
        with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while size < len(data):
                size += self.client.send(view[size:])
        return size

    def shutdown_write(self) -> None:
        with suppress(OSError, ValueError):
            self.client.unwrap()  # sends close_notify without waiting for the client's
        socket.socket.shutdown(self.client, socket.SHUT_WR)


def find_port_problem(host: str, ports: dict[str, int]) -> str | None:
    """Return the reason if a port is not available, or None.

    The keys of `ports` are names of settings.
    """
    for variable, port in ports.items():
        try:
            _listen_briefly(host, port)
        except OSError as error:
            # socket.create_server() adds the address in parentheses.
            reason, _, _ = str(error.strerror).partition(" (")
            if error.errno == errno.EADDRNOTAVAIL:
                return f"HOST={host}: {reason}."
            if error.errno == errno.EADDRINUSE:
                return f"{variable}={port}: {reason}. Stop the other program or set {variable}."
            return f"{variable}={port}: {reason}."
    return None


def _listen_briefly(host: str, port: int) -> None:
    """Listen on a port, and close it again. Raise OSError if it is not available."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, address = addresses[0]
    socket.create_server(address, family=family).close()


def drop_new_handshakes(listener: socket.socket) -> None:
    """Drop new TCP handshakes in all processes that share the listener, before it is closed.

    Otherwise, closing it would reset connections in the accept queue, and clients would lose
    requests. A client whose SYN is dropped sends it again, and its connection is refused. Only
    Linux has these options.
    """
    program = ctypes.create_string_buffer(DROP_SYN, len(DROP_SYN))
    option = struct.pack("HL", len(DROP_SYN) // 8, ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, option)
    except OSError:  # some kernels, such as Linux 6.18, let only root filter TCP sockets
        _set_minimum_ttl(listener, MAX_TTL)


def accept_packets(client: socket.socket) -> None:
    """Accept all packets of a connection, which inherits the minimum TTL of its listener."""
    _set_minimum_ttl(client, 0)


def _set_minimum_ttl(sock: socket.socket, ttl: int) -> None:
    """Drop packets with a lower TTL. Packets begin with 64 or 128, and each router subtracts 1.

    A listener drops SYNs, but not the ACKs that complete handshakes. A connection that they create
    inherits the minimum, so accept_packets() is needed.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):  # an IPv6 or Unix socket
        sock.setsockopt(socket.IPPROTO_IP, IP_MINTTL, ttl)
    with suppress(OSError):  # an IPv4 or Unix socket
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MINHOPCOUNT, ttl)
