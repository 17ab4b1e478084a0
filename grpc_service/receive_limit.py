"""A limit for the gRPC calls whose messages are arriving.

grpcio keeps the part of a message that has arrived in memory, up to MAX_REQUEST_BYTES. If too many
messages are arriving, further calls wait for one of their places:

    free place                call -> receiving
    no free place             call -> waiting. The oldest waiting call ends, if too many wait.
    a message is complete     the newest waiting call -> receiving
    calls wait, and the
    oldest message is slow    its call ends

The message of a small request arrives together with its call, so places become free quickly. The
newest call is the first one, because in a flood, the clients of the oldest ones have probably given
up. A place becomes free only when grpcio reports the end of the operation, because the message
occupies memory until then.
"""

from collections import OrderedDict, deque
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Protocol

# A message that has been arriving for longer must make room for others.
SLOW_SECONDS = 0.1


class IncomingCall(Protocol):
    """A call whose message has not arrived completely."""

    def receive(self) -> bool:
        """Start to receive the message. Return False if the call has ended."""

    def end(self) -> None:
        """End the call with the status for an overload."""


class ReceiveLimit:
    """Lets at most `max_calls` messages arrive at the same time, and `max_waiting` calls wait.

    grpcio's event thread calls add() and remove(). Any thread can call end_oldest(). While calls
    wait, a thread of this object ends slow ones.
    """

    def __init__(self, max_calls: int, max_waiting: int):
        self._max_waiting = max_waiting
        self._free_places = max_calls
        # By the time at which they began, the oldest first.
        self._receiving: OrderedDict[IncomingCall, float] = OrderedDict()
        self._waiting: deque[IncomingCall] = deque()
        self._lock = Lock()
        self._has_waiting = Event()
        Thread(target=self._end_slow_calls, name="grpc_receive", daemon=True).start()

    @property
    def receiving_calls(self) -> int:
        """The number of calls that are receiving, without those that were ended."""
        return len(self._receiving)

    def add(self, call: IncomingCall) -> None:
        """Let a call receive its message, now or later."""
        if self._take_place(call):
            if not call.receive():
                self._free_place(call)
            return
        self._waiting.append(call)
        if len(self._waiting) > self._max_waiting:
            self._waiting.popleft().end()
        self._has_waiting.set()

    def remove(self, call: IncomingCall) -> None:
        """Give the place of a call, whose operation has ended, to the newest waiting call."""
        self._free_place(call)
        while self._waiting:
            newest = self._waiting.pop()
            self._take_place(newest)
            if newest.receive():
                return
            self._free_place(newest)

    def end_oldest(self, min_seconds: float = 0.0) -> bool:
        """End the call that has been receiving for longest, if that is at least `min_seconds`.

        Return False if there is none.
        """
        latest_start = monotonic() - min_seconds
        with self._lock:
            if not self._receiving:
                return False
            oldest, start = next(iter(self._receiving.items()))
            if start > latest_start:
                return False
            del self._receiving[oldest]
        oldest.end()
        return True

    def _end_slow_calls(self) -> None:
        """While calls wait, end as many slow ones."""
        while True:
            self._has_waiting.wait()
            self._has_waiting.clear()
            while self._waiting:
                sleep(SLOW_SECONDS / 2)
                for _ in range(len(self._waiting)):
                    if not self.end_oldest(SLOW_SECONDS):
                        break

    def _take_place(self, call: IncomingCall) -> bool:
        """Return False if no place is free."""
        with self._lock:
            if not self._free_places:
                return False
            self._free_places -= 1
            self._receiving[call] = monotonic()
        return True

    def _free_place(self, call: IncomingCall) -> None:
        with self._lock:
            self._free_places += 1
            self._receiving.pop(call, None)  # it is not there if it was ended
