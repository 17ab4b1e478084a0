"""Answers of gRPC that their clients have not taken: how much of them is kept, and for how long.

They hold no thread, and grpcio keeps them as long as their client is there: one that takes nothing, and asks again and
again, would have all the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from grpc._server import (
    _SEND_INITIAL_METADATA_AND_SEND_MESSAGE_TOKEN,
    _SEND_MESSAGE_TOKEN,
    _SEND_STATUS_FROM_SERVER_TOKEN,
)

from app.machine import give_back_memory

# An answer has so long, and longer by so many bytes a second; a message, too.
PATIENCE_SECONDS, BYTES_A_SECOND = 30.0, 2**16
# What a call takes beside its answer, and what is large beside it.
CALL_BYTES, LARGE = 2**15, 2**14
# Where so many bytes were kept and none are any more, malloc has much that is free.
MUCH = 2**26
SENDS = {_SEND_STATUS_FROM_SERVER_TOKEN, _SEND_MESSAGE_TOKEN, _SEND_INITIAL_METADATA_AND_SEND_MESSAGE_TOKEN}


def note(state: Any, call: Any, size: int) -> None:
    """Says in grpcio's `state` of the call that so many bytes of an answer are being sent."""
    state.call, state.size = call, size


def is_kept(state: Any) -> bool:
    return hasattr(state, "size") and not SENDS.isdisjoint(state.due)


def patience(size: int) -> float:
    """How many seconds so many bytes have."""
    return PATIENCE_SECONDS + size / BYTES_A_SECOND


def give_up(call: Any) -> None:
    with suppress(Exception):  # it has ended
        call.cancel()


class Answer:
    """One that has been kept since it was first looked for."""

    def __init__(self, state: Any, now: float):
        self.call, self.size, self.begun = state.call, state.size + CALL_BYTES, now
        self.is_given_up = False

    def speed(self, now: float) -> float:
        """At most so many bytes a second have been taken."""
        return self.size / max(now - self.begun, 0.1)

    def is_late(self, now: float) -> bool:
        return now > self.begun + patience(self.size)


class Unread:
    """As many bytes are kept as `count` answers of the `largest` size, or of the largest there was, if that is more.

    Where there are more the slowest are given up, and at any time those that are late. `states` are grpcio's, of all
    calls that have not ended.
    """

    def __init__(self, count: int, largest: int):
        self._count, self._largest = count, largest
        self.states: Callable[[], Iterable[Any]] = tuple
        self._answers: dict[Any, Answer] = {}
        self._most = 0  # that was kept at once, in bytes, since memory was last given back

    @property
    def large(self) -> list[Any]:
        """The calls whose last message is kept and large."""
        return [state.call for state in self._kept() if state.statused and state.size > LARGE]

    def _kept(self) -> list[Any]:
        return [state for state in list(self.states()) if is_kept(state)]

    def sweep(self, now: float) -> bool:
        """Looks for what is kept, and gives up what must be; says whether anything is kept."""
        self._answers = {state: self._answers.get(state) or Answer(state, now) for state in self._kept()}
        answers = [answer for answer in self._answers.values() if not answer.is_given_up]
        held = sum(answer.size for answer in answers)
        self._largest = max([self._largest, *(answer.size for answer in answers)])
        self._most, excess = max(self._most, held), held - self._count * self._largest
        for answer in sorted(answers, key=lambda answer: answer.speed(now)):
            if excess > 0 or answer.is_late(now):
                excess -= answer.size
                answer.is_given_up = True
                give_up(answer.call)
        if not answers and self._most > MUCH:
            self._most = 0
            give_back_memory()
        return bool(answers)
