"""gRPC calls whose messages have not all come: whose turn it is, and who has had too long.

grpcio takes in as much of a message as comes, and tells nobody how much that is.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

from app.machine import give_back_memory
from grpc_service.unread import patience

# Where calls are left, those whose messages take longer are ended, first of the clients that have the most.
LATE_SECONDS = 1.0

Work = tuple[Callable[..., Any], tuple[Any, ...]]


class Left:
    """`count` calls whose messages nobody has asked for: of each client in turn its oldest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_peer: OrderedDict[str, deque[Work]] = OrderedDict()
        self.count = 0

    def put(self, call: Any, work: Work) -> None:
        with self._lock:
            self._by_peer.setdefault(peer(call), deque()).append(work)
            self.count += 1

    def take(self) -> Work | None:
        with self._lock:
            if not self._by_peer:
                return None
            name, works = self._by_peer.popitem(last=False)
            self.count -= 1
            work = works.popleft()
            if works:
                self._by_peer[name] = works
            return work

    @property
    def peers(self) -> set[str]:
        with self._lock:
            return set(self._by_peer)


class Coming:
    """Calls whose messages are on their way, and since when. As much is kept as `count` of the `largest` size.

    `received` says by peer() how many bytes have come of a client, and for how many seconds none.
    """

    def __init__(self, count: int, largest: int):
        self._count, self._largest = count, largest
        self._has_ended = False  # some that had too long, whose memory malloc keeps
        self.since: dict[Any, float] = {}
        self.received: Callable[[], dict[str, tuple[int, float]]] = dict

    def late(self, now: float, left: int) -> list[Any]:
        """Those that make room for as many as are left."""
        since = dict(self.since) if left else {}
        return [call for call in greediest(since) if now - since[call] > LATE_SECONDS][:left]

    def stalled(self, now: float) -> list[Any]:
        """Those that have had too long, or whose clients send no more; and where too much may be kept, the largest."""
        if self._has_ended:
            give_back_memory()
        self._has_ended = False
        old = {call: begun for call, begun in dict(self.since).items() if now - begun > LATE_SECONDS}
        if not old:
            return []
        traffic, peers = self.received(), {call: peer(call) for call in old}
        counts = Counter(peers.values())
        held = {call: min(traffic.get(name, (0, 0.0))[0] / counts[name], self._largest) for call, name in peers.items()}
        excess, ended = sum(held.values()) - self._count * self._largest, []
        for call in sorted(old, key=lambda call: (-held[call], old[call])):
            seconds = now - old[call]
            is_silent = min(seconds, traffic.get(peers[call], (0, 0.0))[1]) > patience(0)
            if excess > 0 or is_silent or seconds > patience(self._largest):
                excess -= held[call]
                ended.append(call)
        self._has_ended = bool(ended)
        return ended


def peer(call: Any) -> str:
    """The call's client, as grpcio names it; none where there is no call."""
    return call.peer().decode() if call else ""


def greediest(calls: Iterable[Any]) -> list[Any]:
    """The calls of the clients that have as many of them as any client has, in their order."""
    by_peer = [(call, peer(call)) for call in calls]
    counts = Counter(each for _, each in by_peer)
    most = max(counts.values(), default=0)
    return [call for call, each in by_peer if counts[each] == most]
