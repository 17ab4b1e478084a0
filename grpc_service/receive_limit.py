"""A limit for the gRPC calls whose messages are arriving.

grpcio keeps the part of a message that has arrived in memory, up to MAX_REQUEST_BYTES after
decompression. If too many messages are arriving, further calls wait for one of their places:

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

    def __len__(self) -> int:
        """Return the number of calls that are receiving."""
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

    def end_oldest(self) -> None:
        """End the call that has been receiving for longest, if there is one."""
        with self._lock:
            if not self._receiving:
                return
            oldest, _ = self._receiving.popitem(last=False)
        oldest.end()

    def _end_slow_calls(self) -> None:
        """End the oldest call again and again, as long as it is slow and others wait."""
        while True:
            self._has_waiting.wait()
            self._has_waiting.clear()
            while self._waiting:
                sleep(SLOW_SECONDS / 2)
                if self._is_oldest_slow():
                    self.end_oldest()

    def _is_oldest_slow(self) -> bool:
        with self._lock:
            if not self._receiving:
                return False
            start = next(iter(self._receiving.values()))
        return monotonic() - start > SLOW_SECONDS

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
