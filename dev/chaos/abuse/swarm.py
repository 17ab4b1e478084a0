"""Many connections of one attacker, in one thread.

A Peer decides what its connection sends, and how it reacts to received data. The Swarm opens the
connections, sends and receives, and counts.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

# Connections that are opened at the same time. The service's queue of new connections holds 2,048.
MAX_OPENING = 512
# Pause before the next attempt if the system has no free port.
NO_PORT_SECONDS = 0.05
POLL_SECONDS = 0.05
RECEIVE_BYTES = 2**16
# Resets a connection when it is closed, so that its port is free at once.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Peer:
    """The attacker's side of a connection.

    output: the bytes to send next
    is_reading: False if the connection never reads
    """

    def __init__(self, output: bytes, *, is_reading: bool = True):
        self.output = memoryview(output)
        self.is_reading = is_reading

    def handle_sent(self) -> None:
        """Handle that all of the output has been sent. It can be set again."""

    def handle_data(self, data: bytes) -> None:
        """Handle received data. More output can be added."""


class Repeater(Peer):
    """Sends the request again after each response.

    A response in several packets causes several requests, which does no harm.
    """

    def __init__(self, request: bytes):
        super().__init__(request)
        self._request = memoryview(request)

    def handle_data(self, data: bytes) -> None:
        if not self.output:
            self.output = self._request


class Flooder(Peer):
    """Sends the requests again and again, and never reads a response."""

    def __init__(self, requests: bytes):
        super().__init__(requests, is_reading=False)
        self._requests = memoryview(requests)

    def handle_sent(self) -> None:
        self.output = self._requests


@dataclass
class Counts:
    """The numbers of connections and bytes of a swarm so far."""

    opened: int = 0
    closed_by_service: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class _Connection:
    def __init__(self, sock: socket.socket, peer: Peer):
        self.sock = sock
        self.peer = peer
        self.is_open = False
        self.events = selectors.EVENT_WRITE


class Swarm:
    """Up to `size` connections to a port of 127.0.0.1. A context manager, which closes them.

    make_peer: returns the Peer of a new connection
    reconnects: whether a connection that the service closes is replaced
    receive_buffer: bytes of the system's buffer for received data, or 0 for its default
    """

    def __init__(
        self,
        port: int,
        size: int,
        make_peer: Callable[[], Peer],
        *,
        reconnects: bool = False,
        receive_buffer: int = 0,
    ):
        self.counts = Counts()
        self._address = ("127.0.0.1", port)
        self._size = size
        self._make_peer = make_peer
        self._reconnects = reconnects
        self._receive_buffer = receive_buffer
        self._selector = selectors.DefaultSelector()
        self._connections: dict[_Connection, None] = {}
        self._opening = 0
        self._next_attempt = 0.0

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all_but(0)
        self._selector.close()

    @property
    def has_sent_everything(self) -> bool:
        """True if each connection has been opened, and has nothing more to send."""
        if self.counts.opened < self._size:
            return False
        return not any(connection.peer.output for connection in self._connections)

    @property
    def is_closed_by_service(self) -> bool:
        """True if the service has closed each connection, and none is opened again."""
        return self.counts.opened >= self._size and not self._connections

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Send and receive until the time `until` of the monotonic clock, or until `is_done()`."""
        while time.monotonic() < until and not is_done():
            self._open_missing()
            for key, events in self._selector.select(POLL_SECONDS):
                self._handle(key.data, events)

    def close_all_but(self, count: int) -> None:
        """Close the oldest connections, so that `count` remain."""
        surplus = max(0, len(self._connections) - count)
        for connection in list(self._connections)[:surplus]:
            self._close(connection)

    def open_again(self, size: int) -> None:
        """Let the swarm have `size` connections more than it has had so far."""
        self._size = self.counts.opened + size

    def _open_missing(self) -> None:
        if time.monotonic() < self._next_attempt:
            return
        while self._is_one_missing() and self._opening < MAX_OPENING:
            try:
                self._open()
            except OSError:
                self._next_attempt = time.monotonic() + NO_PORT_SECONDS
                return

    def _is_one_missing(self) -> bool:
        if self._reconnects:
            return len(self._connections) < self._size
        return self.counts.opened + self._opening < self._size

    def _open(self) -> None:
        sock = socket.socket()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            code = sock.connect_ex(self._address)
            if code != errno.EINPROGRESS:
                raise OSError(code, "cannot connect")
        except OSError:
            sock.close()
            raise

        connection = _Connection(sock, self._make_peer())
        self._connections[connection] = None
        self._opening += 1
        self._selector.register(sock, connection.events, connection)

    def _handle(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self._receive(connection)
            if events & selectors.EVENT_WRITE:
                self._send(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._handle_end(connection)
            return
        self._select_events(connection)

    def _receive(self, connection: _Connection) -> None:
        data = connection.sock.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("closed by the service")
        self.counts.bytes_received += len(data)
        connection.peer.handle_data(data)

    def _send(self, connection: _Connection) -> None:
        if not connection.is_open:
            self._handle_opened(connection)
        peer = connection.peer
        if peer.output:
            count = connection.sock.send(peer.output)
            self.counts.bytes_sent += count
            peer.output = peer.output[count:]
            if not peer.output:
                peer.handle_sent()

    def _handle_opened(self, connection: _Connection) -> None:
        code = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "cannot connect")
        connection.is_open = True
        self._opening -= 1
        self.counts.opened += 1

    def _handle_end(self, connection: _Connection) -> None:
        if connection.is_open:
            self.counts.closed_by_service += 1
        self._close(connection)

    def _select_events(self, connection: _Connection) -> None:
        """Wait for the events that the connection can handle."""
        events = 0
        if connection.peer.is_reading:
            events |= selectors.EVENT_READ
        if connection.peer.output or not connection.is_open:
            events |= selectors.EVENT_WRITE
        if events == connection.events:
            return
        if not connection.events:
            self._selector.register(connection.sock, events, connection)
        elif not events:
            self._selector.unregister(connection.sock)
        else:
            self._selector.modify(connection.sock, events, connection)
        connection.events = events

    def _close(self, connection: _Connection) -> None:
        if connection.events:
            self._selector.unregister(connection.sock)
        if not connection.is_open:
            self._opening -= 1
        connection.sock.close()
        del self._connections[connection]
