"""Answers of gRPC that their clients have not taken: how much of them is kept, and for how long.

They hold no thread, and grpcio keeps them as long as their client is there: one that takes nothing, and asks again and
again, would have all the memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from grpc._server import _SEND_STATUS_FROM_SERVER_TOKEN

from app.machine import give_back_memory

# Shorter answers are not counted: so much of them waits in a connection's buffers anyway.
SHORT = 2**14
# An answer has so long, and longer by so many bytes a second.
PATIENCE_SECONDS, BYTES_A_SECOND = 30.0, 2**16
# Where so many bytes were kept and none are any more, malloc has much that is free.
MUCH = 2**26
WATCH_SECONDS = 0.1


class Answer:
    """One of `size` bytes to grpcio's `call`, in its `state`."""

    def __init__(self, call: Any, state: Any, size: int):
        self.call, self.state, self.size = call, state, size
        self.begun = time.monotonic()
        self.is_given_up = False

    def is_kept(self) -> bool:
        return _SEND_STATUS_FROM_SERVER_TOKEN in self.state.due

    def speed(self, now: float) -> float:
        """At most so many bytes a second have been taken."""
        return self.size / max(now - self.begun, WATCH_SECONDS)

    def is_late(self, now: float) -> bool:
        return now > self.begun + PATIENCE_SECONDS + self.size / BYTES_A_SECOND

    def give_up(self) -> None:
        self.is_given_up = True
        with suppress(Exception):  # it has ended
            self.call.cancel()


class Unread:
    """At most `limit` bytes are kept: where there are more the slowest are given up, and those that are late.

    `start` has a thread begin with what it is given.
    """

    def __init__(self, limit: int, start: Callable[[Callable[[], None], str], bool]):
        self._limit, self._start = limit, start
        self._answers: dict[Any, Answer] = {}
        self._has_some = threading.Event()
        self._is_watched = False
        self._most = 0  # that was kept at once, in bytes, since memory was last given back

    def add(self, call: Any, state: Any, size: int) -> None:
        for answer in list(self._answers.values())[:2]:  # so that no more are kept than are on their way
            if not answer.is_kept():
                self._answers.pop(answer.call, None)
        self._answers[call] = Answer(call, state, size)
        if not self._has_some.is_set():
            self._has_some.set()
        if not self._is_watched:
            self._is_watched = self._start(self._watch, "unread")

    def _watch(self) -> None:
        while True:
            self._has_some.wait()
            self._has_some.clear()
            while self._answers:
                time.sleep(WATCH_SECONDS)
                self._sweep(time.monotonic())

    def _sweep(self, now: float) -> None:
        for answer in list(self._answers.values()):
            if not answer.is_kept():
                self._answers.pop(answer.call, None)
        kept = [answer for answer in list(self._answers.values()) if not answer.is_given_up]
        held = sum(answer.size for answer in kept)
        self._most, excess = max(self._most, held), held - self._limit
        for answer in sorted(kept, key=lambda answer: answer.speed(now)):
            if excess > 0 or answer.is_late(now):
                excess -= answer.size
                answer.give_up()
        if not kept and self._most > MUCH:
            self._most = 0
            give_back_memory()
