"""Thread pool with the leader/followers pattern: the leader waits for events and handles them.

Connections are not passed between threads, which would take a quarter of the time of a small
request. While the leader handles an event, no thread waits for events, because a second one would
only contend for the GIL. A request that blocks or runs for long releases the leadership, and a
follower becomes the leader. If a long request does not release it, a follower takes it over.
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


class Leadership:
    """The right to wait for events, which at most one thread has.

    A thread that handles an event for longer than TAKEOVER_SECONDS loses the leadership to a
    follower. It can end its event or release the leadership at the same moment. `_transition` makes
    each of these steps atomic, so that only one of them happens. After a takeover, `_lock` stays
    locked, and the new leader releases it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while there is a leader
        self._transition = threading.Lock()
        self._leader = 0  # a thread identifier, or 0
        # Start of each thread's event, or infinity between events.
        self._begun: dict[int, float] = {}

    def is_held_by(self, thread: int) -> bool:
        return self._leader == thread

    def acquire(self, thread: int) -> None:
        """Wait until the leadership is free or its holder is too slow, and take it.

        Only one thread calls this.
        """
        while not self._lock.acquire(timeout=TAKEOVER_SECONDS):
            if self._take_over(thread):
                return
        self._leader = thread

    def release(self, thread: int) -> None:
        """Release the leadership if this thread has it."""
        with self._transition:
            if self._leader == thread:
                self._leader = 0
                self._lock.release()

    def begin_event(self, thread: int) -> None:
        self._begun[thread] = time.monotonic()

    def end_event(self, thread: int) -> None:
        with self._transition:
            self._begun[thread] = math.inf

    def _take_over(self, thread: int) -> bool:
        """Take the leadership from a leader that has handled one event for too long.

        Return True if it worked.
        """
        with self._transition:
            begun = self._begun.get(self._leader, math.inf)
            if time.monotonic() <= begun + TAKEOVER_SECONDS:
                return False
            self._leader = thread
            return True


class LeaderFollowersPool:
    """At most `size` threads, which call `handle` with the descriptors that `epoll` reports."""

    # The annotation is in quotes, because macOS, which imports this module too, has no epoll.
    def __init__(self, epoll: "select.epoll", size: int, handle: Callable[[int], None]):
        self.epoll = epoll
        self.size = size
        self.handle = handle
        self.is_running = True
        self._thread_count = 0
        self._leadership = Leadership()
        self._succession = threading.Lock()  # its holder becomes the next leader
        # Descriptors that epoll has reported and no thread has handled.
        self._ready: deque[int] = deque()
        self._followers: set[int] = set()  # thread identifiers

    def add_thread(self) -> None:
        """Start a thread. Raise RuntimeError if the system cannot start one."""
        self._thread_count += 1  # before the start, because the new thread compares it with `size`
        name = f"rest-{self._thread_count}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError:
            self._thread_count -= 1
            raise

    def release_leadership(self) -> None:
        """Let another thread wait for events, because this one will block or run for long."""
        self._leadership.release(threading.get_ident())

    def stop(self) -> None:
        """Let each thread end after its current event."""
        self.is_running = False

    def _run(self) -> None:
        thread = threading.get_ident()
        while self.is_running:
            self._become_leader(thread)
            while self.is_running and self._leadership.is_held_by(thread):
                self._handle_event(thread)
            # At the end of the service. Otherwise, another thread leads already.
            self._leadership.release(thread)

    def _handle_event(self, thread: int) -> None:
        """Wait for events if none is left, and handle one. Only the leader calls this."""
        if not self._ready:
            events = self.epoll.poll(POLL_SECONDS, MAX_EVENTS)
            self._ready += [descriptor for descriptor, _ in events]
        if not self._ready:
            return

        descriptor = self._ready.popleft()
        self._leadership.begin_event(thread)
        self.handle(descriptor)
        self._leadership.end_event(thread)

    def _become_leader(self, thread: int) -> None:
        """Wait until this thread is the leader. Start a thread if no follower is left."""
        self._followers.add(thread)
        with self._succession:
            self._leadership.acquire(thread)
            self._followers.remove(thread)
            if not self._followers and self._thread_count < self.size:
                with suppress(RuntimeError):  # the next leader tries again
                    self.add_thread()
