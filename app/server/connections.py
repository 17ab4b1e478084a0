"""The table of a worker's connections.

The invariant: an open connection is either in `_waiting`, because it waits for its client, or owned
by exactly one thread. That is why connections need no lock:

1. epoll reports the descriptor of a connection to a thread, which calls run_step().
2. run_step() removes the connection from `_waiting`. This is atomic, so only one thread succeeds,
   and owns the connection.
3. The step runs: it receives, calls the application, and sends.
4. _release() adds the connection to `_waiting` again, unless it is closed.
"""

import logging
import select
import sys
import time
from collections.abc import Callable
from threading import Lock

from app.server.connection import (
    BUSY_STATES,
    CLOSED,
    IDLE,
    OVERLOADED,
    READABLE,
    SENDING_STATES,
    WRITABLE,
    Connection,
    State,
)

Step = Callable[[Connection], State]


class ConnectionTable:
    """Open connections, and those of them that wait for their clients.

    epoll: reports the descriptors of waiting connections that are ready
    log: gunicorn's logger
    """

    def __init__(self, log: logging.Logger):
        self.epoll = select.epoll()
        self.log = log
        self._open: set[Connection] = set()
        # By descriptor, in the order in which they began to wait.
        self._waiting: dict[int, Connection] = {}
        # The size of the data that all connections buffer, and its limit.
        self._buffered_bytes = 0
        self._message_bytes = sys.maxsize
        self._messages = 1
        self._count_lock = Lock()
        self._close_lock = Lock()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def buffered_bytes(self) -> int:
        """The size of all incomplete requests and unsent responses."""
        return self._buffered_bytes

    def limit_memory(self, *, message_bytes: int, messages: int) -> None:
        """Limit the memory for incomplete requests and unsent responses.

        The limit is `messages` times the larger one of `message_bytes` and the largest buffer. A
        client that is reading its response is closed only beyond twice the limit.
        """
        self._message_bytes = message_bytes
        self._messages = messages

    # Any thread

    def run_step(self, descriptor: int, step: Step = Connection.run) -> None:
        """Run a step of a connection, unless another thread owns it.

        Then let the connection wait, or close it.
        """
        connection = self._waiting.pop(descriptor, None)
        if connection is None:
            return

        try:
            state = step(connection)
            connection.enter(state)
        except OSError:  # the client has disconnected
            connection.enter(CLOSED)
        except BaseException:
            self.log.exception("Unhandled exception in a thread of the server")
            connection.enter(CLOSED)
        self._release(connection)

    def _release(self, connection: Connection) -> None:
        """Let a connection wait for its client, or forget it if it is closed.

        The calling thread owns it until then.
        """
        if connection.state is not IDLE or connection.has_counted_memory:
            self.count_memory(connection)
        if connection.state is CLOSED:
            self._open.discard(connection)
            return

        events = READABLE
        # A connection whose next request has arrived is writable, and so is reported at once, but
        # after the other connections.
        if connection.state in SENDING_STATES or connection.has_requests:
            events = WRITABLE
        self._waiting[connection.descriptor] = connection
        try:
            # The object, because fileno() of a closed connection is -1. A new client may already
            # have the number in `descriptor`.
            self.epoll.modify(connection, events)
        except (OSError, ValueError):
            return  # since it is in `_waiting`, the main thread has closed it

    def count_memory(self, connection: Connection) -> bool:
        """Count what a connection buffers. If this exceeds the limit, close slow connections.

        Return False if the limit is still exceeded.
        """
        growth = connection.buffer_growth()
        if not growth:
            return True
        with self._count_lock:
            self._buffered_bytes += growth
        if growth < 0 or self._buffered_bytes <= self._messages * self._message_bytes:
            return True
        # The lock is not taken twice. Closing a connection also calls this method, but its buffer
        # has shrunk.
        with self._close_lock:
            return self._close_slow_connections(connection.buffered_bytes)

    def _close_slow_connections(self, size: int) -> bool:
        """Close connections until the others are within the limit.

        `size` is that of the buffer that has grown. Return False if the limit is still exceeded.
        """
        busy = []
        for connection in list(self._waiting.values()):
            if connection.state in BUSY_STATES:
                busy.append(connection)
        sizes = [connection.buffered_bytes for connection in busy]
        limit = self._messages * max([self._message_bytes, size, *sizes])
        closed = 0
        now = time.monotonic()
        # Those that have waited for longest come first.
        for connection in busy:
            if self._buffered_bytes <= limit:
                break
            can_stay = connection.is_reading(now) and self._buffered_bytes <= 2 * limit
            if not can_stay:
                self.run_step(connection.descriptor, _end_because_of_memory)
                closed += 1

        if closed:
            self.log.info(
                "Closed %d slow clients, because requests and responses exceeded %d bytes",
                closed,
                limit,
            )
        return self._buffered_bytes <= limit

    # The main thread

    def add(self, connection: Connection) -> None:
        """Add a new connection. Raise OSError if the system cannot poll it."""
        self.epoll.register(connection.descriptor, 0)
        self._open.add(connection)
        connection.enter(IDLE)
        self._release(connection)

    def close_oldest(self) -> None:
        """Close the connection that has waited for longest.

        Prefer one whose client does not wait for a response.
        """
        waiting = list(self._waiting.values())
        idle = [connection for connection in waiting if connection.state not in BUSY_STATES]
        candidates = idle or waiting
        if candidates:
            self.run_step(candidates[0].descriptor, lambda _: CLOSED)

    def time_out_overdue(self, now: float, *, idle_seconds: float) -> None:
        """Time out connections whose state lasts too long at the time `now` of time.monotonic()."""

        def time_out_if_overdue(connection: Connection) -> State:
            # Another thread may have run the connection since the check below.
            if connection.is_overdue(now, idle_seconds):
                return connection.end_early()
            return connection.state

        for connection in list(self._waiting.values()):
            if connection.is_overdue(now, idle_seconds):
                self.run_step(connection.descriptor, time_out_if_overdue)

    def restart_waits(self) -> None:
        """Let the time limits of all waiting connections begin now."""
        for connection in list(self._waiting.values()):
            connection.progress.begin_wait()

    def close_after_fork(self) -> None:
        """Close the sockets in a forked process."""
        self.epoll.close()
        for connection in self._open:
            connection.socket.client.close()


def _end_because_of_memory(connection: Connection) -> State:
    return connection.end_early(OVERLOADED)
