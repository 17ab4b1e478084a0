"""The leader/followers pattern: of several threads, one waits for events, and handles each event that it gets itself.

No thread passes a connection to another, which would cost a small request a quarter of its time. While the leader
handles an event, no thread waits for events, because a second one would only contend for Python's lock. A request that
waits or runs for long releases the leadership, and a follower becomes the leader. If a request runs for long without
that, a follower takes the leadership.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

POLL_SECONDS = 1.0
MAX_EVENTS = 16  # that a leader gets at once
TAKEOVER_SECONDS = 0.05  # a leader that handles one event for longer loses the leadership


class LeaderFollowersPool:
    """At most `size` threads, which call `handle` with the file descriptors that `epoll` reports.

    Threads are known by their identifiers. `_begun` has the time when a thread began to handle an event, or infinity.
    """

    def __init__(self, epoll: select.epoll, size: int, handle: Callable[[int], None]):
        self.epoll, self.size, self.handle = epoll, size, handle
        self.is_running = True
        self._leader = self._threads = 0
        self._leadership = threading.Lock()  # held while there is a leader
        self._succession = threading.Lock()  # its holder becomes the next leader
        self._ready: deque[int] = deque()  # descriptors that epoll has reported, for the leader
        self._followers: set[int] = set()
        self._begun: dict[int, float] = {}

    def add_thread(self) -> None:
        threading.Thread(target=self._run, name=f"rest-{self._threads + 1}", daemon=True).start()
        self._threads += 1

    def release_leadership(self) -> None:
        """Let another thread wait for events: this one is about to wait, or to run for long."""
        if self._leader == threading.get_ident():
            self._leader = 0
            self._leadership.release()

    def _run(self) -> None:
        me = threading.get_ident()
        while self.is_running:
            self._become_leader(me)
            while self.is_running and self._leader == me:
                if not self._ready:
                    self._ready += [descriptor for descriptor, _ in self.epoll.poll(POLL_SECONDS, MAX_EVENTS)]
                if self._ready:
                    descriptor = self._ready.popleft()
                    self._begun[me] = time.monotonic()
                    self.handle(descriptor)
                    self._begun[me] = math.inf
            self.release_leadership()

    def _become_leader(self, me: int) -> None:
        """Wait until the leadership is free or overdue. Make sure that there is a follower."""
        self._followers.add(me)
        with self._succession:
            while not self._leadership.acquire(timeout=TAKEOVER_SECONDS):
                if time.monotonic() > self._begun.get(self._leader, math.inf) + TAKEOVER_SECONDS:
                    break
            self._leader = me
            self._followers.remove(me)
            if not self._followers and self._threads < self.size:
                with suppress(RuntimeError):  # the system has no more threads. The next leader tries again
                    self.add_thread()
