"""A limit for the gRPC calls whose messages are arriving.

grpcio keeps the part of a message that has arrived in memory, up to MAX_REQUEST_BYTES. If too many
messages are arriving, the call that has been receiving for longest is ended. The message of a small
request arrives together with its call, so slow and silent clients do not delay other clients.
"""

from collections import OrderedDict
from typing import Protocol


class IncomingCall(Protocol):
    """A call whose message has not arrived completely."""

    def receive(self) -> bool:
        """Start to receive the message. Return False if the call has ended."""

    def end(self) -> None:
        """End the call with the status for an overload."""


class ReceiveLimit:
    """Lets at most `max_calls` messages arrive at the same time.

    grpcio's event thread adds and removes calls. Another thread can end the oldest ones meanwhile:
    each operation of an OrderedDict is atomic.
    """

    def __init__(self, max_calls: int):
        self._max_calls = max_calls
        # The keys keep their order: that in which the calls began to receive.
        self._receiving: OrderedDict[IncomingCall, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._receiving)

    def add(self, call: IncomingCall) -> None:
        """Start to receive the message of a call."""
        if len(self._receiving) >= self._max_calls:
            self.end_oldest()
        if call.receive():
            self._receiving[call] = None

    def end_oldest(self) -> None:
        """End the call that has been receiving for longest, if there is one."""
        try:
            oldest, _ = self._receiving.popitem(last=False)
        except KeyError:
            return
        oldest.end()

    def remove(self, call: IncomingCall) -> None:
        """Forget a call, because its message is complete, or because it has ended."""
        self._receiving.pop(call, None)
