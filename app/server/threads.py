"""The leader/followers pattern: of several threads, one waits for events, and handles each event that it gets itself.

No thread passes a connection to another, which would cost a small request a quarter of its time. While the leader
handles an event, nobody waits for events, because a second thread would only contend for Python's lock. A request that
waits or runs for long releases the leadership, and a follower becomes the leader. If a request runs for long without
that, a follower takes the leadership.
"""

from __future__ import annotations

import logging
import math
import select
import threading
import time
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
MAX_EVENTS = 16  # that a leader gets at once
TAKEOVER_SECONDS = 0.05  # a leader that handles one event for longer loses the leadership


class Leadership:
    """The right to wait for events. `since` is the time when its holder began to handle an event, or infinity."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.since = math.inf


class LeaderFollowersPool:
    """At most `size` threads, which call `handle` with the file descriptors that `epoll` reports."""

    def __init__(self, epoll: select.epoll, size: int, handle: Callable[[int], None]):
        self.epoll, self.size, self.handle = epoll, size, handle
        self.is_running = True
        self._leadership = Leadership()
        self._succession = threading.Lock()  # its holder becomes the next leader
        self._held = threading.local()  # the leadership that a thread has
        self._counts = threading.Lock()
        self._ready: deque[int] = deque()  # descriptors that epoll has reported, for the leader
        self._followers = self._threads = 0

    def add_thread(self) -> None:
        """Start one more follower."""
        self._threads += 1
        try:
            threading.Thread(target=self._run, name=f"rest-{self._threads}", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            self._threads -= 1
            if not self._threads:
                raise
            logger.warning("no new thread: %s", error)

    def release_leadership(self) -> None:
        """Let another thread wait for events: this one is about to wait, or to run for long."""
        leadership = getattr(self._held, "leadership", None)
        if leadership is not None:
            self._held.leadership, leadership.since = None, math.inf
            leadership.lock.release()

    def _run(self) -> None:
        while self.is_running:
            leadership = self._become_leader()
            while self.is_running and self._held.leadership is leadership and self._leadership is leadership:
                if not self._ready:
                    self._ready += [descriptor for descriptor, _ in self.epoll.poll(WAIT_SECONDS, MAX_EVENTS)]
                if self._ready:
                    descriptor = self._ready.popleft()
                    leadership.since = time.monotonic()
                    self.handle(descriptor)
                    leadership.since = math.inf
            self.release_leadership()

    def _become_leader(self) -> Leadership:
        """Wait until the leadership is free or overdue. Make sure that there is a follower."""
        with self._counts:
            self._followers += 1
        with self._succession:
            last = self._leadership
            while not last.lock.acquire(timeout=TAKEOVER_SECONDS):
                if time.monotonic() > last.since + TAKEOVER_SECONDS:
                    break
            self._leadership = self._held.leadership = leadership = Leadership()
            leadership.lock.acquire()
            with self._counts:
                self._followers -= 1
            if not self._followers and self._threads < self.size:
                self.add_thread()
        return leadership
