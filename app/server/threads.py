"""Thread pool with the leader/followers pattern: one thread, the leader, waits for events and handles them itself.

Connections are not passed between threads, which would take a quarter of the time of a small request. While the leader
handles an event, no thread waits for events, because a second one would only contend for the GIL. A request that blocks
or runs for long releases the leadership, and a follower becomes the leader. If a long request does not release it, a
follower takes it over.
"""

import math
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

POLL_SECONDS = 1.0
MAX_EVENTS = 16  # maximum number of events per poll
TAKEOVER_SECONDS = 0.05  # a leader that handles one event for longer loses the leadership


class LeaderFollowersPool:
    """At most `size` threads, which call `handle` with the file descriptors that `epoll` reports.

    `_leader` and `_followers` are thread identifiers. `_begun` has the start of each thread's event, or infinity.

    A leader can release the leadership, or end its event, while a follower takes the leadership over. `_transition` makes
    each of these steps atomic, so that only one of them happens.
    """

    # The annotation is in quotes, because macOS, which imports this module too, has no epoll.
    def __init__(self, epoll: "select.epoll", size: int, handle: Callable[[int], None]):
        self.epoll, self.size, self.handle = epoll, size, handle
        self.is_running = True
        self._leader = self._threads = 0
        self._leadership = threading.Lock()  # held while there is a leader
        self._succession = threading.Lock()  # its holder becomes the next leader
        self._transition = threading.Lock()
        # Descriptors that epoll has reported and no thread has handled.
        self._ready: deque[int] = deque()
        self._followers: set[int] = set()
        self._begun: dict[int, float] = {}

    def add_thread(self) -> None:
        """Start a thread. Raise RuntimeError if the system cannot start one."""
        self._threads += 1  # before the start, because the new thread compares it with `size`
        try:
            threading.Thread(target=self._run, name=f"rest-{self._threads}", daemon=True).start()
        except RuntimeError:
            self._threads -= 1
            raise

    def release_leadership(self) -> None:
        """Let another thread wait for events, because this one is about to block or to run for long."""
        me = threading.get_ident()
        with self._transition:
            if self._leader == me:
                self._leader = 0
                self._leadership.release()

    def _run(self) -> None:
        me = threading.get_ident()
        while self.is_running:
            self._become_leader(me)
            while self.is_running and self._leader == me:
                if not self._ready:
                    self._ready += [
                        descriptor for descriptor, _ in self.epoll.poll(POLL_SECONDS, MAX_EVENTS)
                    ]
                if self._ready:
                    descriptor = self._ready.popleft()
                    self._begun[me] = time.monotonic()
                    self.handle(descriptor)
                    with self._transition:
                        self._begun[me] = math.inf
            self.release_leadership()  # at the end of the service: otherwise, another thread leads

    def _become_leader(self, me: int) -> None:
        """Wait until the leadership is free or overdue. Start a thread if no follower is left."""
        self._followers.add(me)
        with self._succession:
            while not self._leadership.acquire(timeout=TAKEOVER_SECONDS):
                # After a takeover, `_leadership` stays locked, and this thread will release it.
                if self._take_over(me):
                    break
            self._leader = me
            self._followers.remove(me)
            if not self._followers and self._threads < self.size:
                with suppress(RuntimeError):  # the next leader tries again
                    self.add_thread()

    def _take_over(self, me: int) -> bool:
        """Become the leader and return True if the leader has handled one event for too long."""
        with self._transition:
            begun = self._begun.get(self._leader, math.inf)
            if time.monotonic() <= begun + TAKEOVER_SECONDS:
                return False
            self._leader = me
            return True
