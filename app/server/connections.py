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
from collections.abc import Callable

from app.server.connection import (
    BUSY_STATES,
    CLOSED,
    IDLE,
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

    def __len__(self) -> int:
        return len(self._open)

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
        if connection.state is CLOSED:
            self._open.discard(connection)
            return

        events = WRITABLE if connection.state in SENDING_STATES else READABLE
        self._waiting[connection.descriptor] = connection
        try:
            # The object, because fileno() of a closed connection is -1. A new client may already
            # have the number in `descriptor`.
            self.epoll.modify(connection, events)
        except (OSError, ValueError):
            return  # since it is in `_waiting`, the main thread has closed it

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
                return connection.time_out()
            return connection.state

        for connection in list(self._waiting.values()):
            if connection.is_overdue(now, idle_seconds):
                self.run_step(connection.descriptor, time_out_if_overdue)

    def limit_memory(self, *, message_bytes: int, messages: int) -> None:
        """Close slow connections until their buffered data fits into the memory limit.

        The limit is `messages` times `message_bytes`, or times the largest buffer if that is
        larger.
        """
        busy = [
            connection
            for connection in list(self._waiting.values())
            if connection.state in BUSY_STATES
        ]
        sizes = [connection.buffered_bytes for connection in busy]
        largest = max([message_bytes, *sizes])
        excess = sum(sizes) - messages * largest
        if excess <= 0:
            return

        self.log.info(
            "Requests and responses exceed the memory limit by %d bytes. Closing slow clients",
            excess,
        )
        # Those that have waited for longest come first.
        for connection, size in zip(busy, sizes, strict=True):
            if excess <= 0:
                break
            excess -= size
            self.run_step(connection.descriptor, _time_out_because_of_memory)

    def restart_waits(self) -> None:
        """Let the time limits of all waiting connections begin now."""
        for connection in list(self._waiting.values()):
            connection.progress.begin_wait()

    def close_after_fork(self) -> None:
        """Close the sockets in a forked process."""
        self.epoll.close()
        for connection in self._open:
            connection.socket.client.close()


def _time_out_because_of_memory(connection: Connection) -> State:
    return connection.time_out("Server overloaded. Retry later.")
