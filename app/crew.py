"""The threads that answer REST: one has the turn, waits for connections, and attends to one after another.

Several would only contend for Python's lock. A request that waits, or runs for long, gives the turn away; one that
holds it for long without saying so is stepped past. A thread that has to wait for a client is away meanwhile, and
another may be in its place.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

logger = logging.getLogger(__name__)

# A connection is reported once, until it is registered again. Systems without epoll use gunicorn's own workers.
ONCE = getattr(select, "EPOLLONESHOT", 0)
READABLE, WRITABLE = select.POLLIN | ONCE, select.POLLOUT | ONCE

WAIT_SECONDS = 1.0
STEP_PAST_SECONDS = 0.05
# Clients that a thread waits for; of more, the one that has been waited for longest is cut off.
AWAY_AT_MOST = 64


class Turn:
    """The right to wait for connections, free when the lock is; since when its holder has been answering one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.since: float | None = None

    def is_stuck(self) -> bool:
        since = self.since
        return since is not None and time.monotonic() - since > STEP_PAST_SECONDS


class Crew:
    """At most `count` threads, which call `attend` with the file descriptors that `epoll` reports."""

    def __init__(self, epoll: select.epoll, count: int, attend: Callable[[int], None]):
        self.epoll, self.count, self.attend = epoll, count, attend
        self.turn = Turn()
        self.line = threading.Lock()  # whoever has it is next
        self.held = threading.local()  # the turn that a thread has
        self.counting = threading.Lock()
        self.in_line = self.threads = 0
        self.away: OrderedDict[socket.socket, None] = OrderedDict()
        self.serving = True

    def serve(self) -> None:
        """What each thread does: takes the turn, and attends to whoever is next until it has given the turn away."""
        while self.serving:
            turn = self.take_turn()
            while self.serving and self.held.turn is turn and self.turn is turn:
                if events := self.epoll.poll(WAIT_SECONDS, 1):
                    turn.since = time.monotonic()
                    self.attend(events[0][0])
                    turn.since = None
            self.step_aside()
            with self.counting:
                if self.threads > self.count:  # others came while it was away
                    self.threads -= 1
                    return
                self.in_line += 1

    def take_turn(self) -> Turn:
        """Waits until the turn is free, or its holder stuck; sees to it that another thread waits behind this one."""
        with self.line:
            last = self.turn
            while not last.lock.acquire(timeout=STEP_PAST_SECONDS) and not last.is_stuck():
                pass
            turn = Turn()
            turn.lock.acquire()
            self.turn = self.held.turn = turn
        self.leave_line()
        return turn

    def leave_line(self) -> None:
        with self.counting:
            self.in_line -= 1
            is_last = not self.in_line and self.threads < self.count
        if is_last:
            self.add_thread()

    @contextmanager
    def waiting(self, client: socket.socket) -> Iterator[None]:
        """For a thread that waits for the client in the middle of a request."""
        with self.counting:
            if len(self.away) >= AWAY_AT_MOST:
                cut_off(self.away.popitem(last=False)[0])
            self.away[client] = None
            self.threads -= 1
            is_last = not self.in_line and self.threads < self.count
        self.step_aside()
        try:
            if is_last:
                self.add_thread()
            yield
        finally:
            with self.counting:
                self.away.pop(client, None)
                self.threads += 1

    def add_thread(self) -> None:
        """One more in the line."""
        with self.counting:
            self.in_line += 1
            self.threads += 1
            name = f"rest-{self.threads}"
        try:
            threading.Thread(target=self.serve, name=name, daemon=True).start()
        except RuntimeError as error:  # the system has no more
            with self.counting:
                self.in_line -= 1
                self.threads -= 1
            if not self.threads:
                raise
            logger.error("one thread less for REST: %s", error)

    def step_aside(self) -> None:
        """Gives the turn away, if this thread has it."""
        turn = getattr(self.held, "turn", None)
        if turn is not None:
            self.held.turn = turn.since = None
            turn.lock.release()


def cut_off(client: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        socket.socket.shutdown(client, socket.SHUT_RDWR)
