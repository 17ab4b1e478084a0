"""Shared memory of all processes of the service: the state of each worker, and the reason for a failed start."""

import mmap
import time

PLACES = 2**16
REASON_BYTES = 2**12
STOP_SECONDS = 0.5
STARTING, READY, STUCK, STOPPING, ENDED = range(
    5
)  # states of a worker, in order. A stuck worker still serves


class SharedState:
    """Shared state, created before the workers are forked. Each worker has one byte, at its age modulo PLACES.

    The last byte is STOPPING if the whole service stops.
    """

    def __init__(self) -> None:
        self._states = mmap.mmap(-1, PLACES + 1)
        self._reason = mmap.mmap(-1, REASON_BYTES)

    def state(self, age: int) -> int:
        return self._states[age % PLACES]

    def set_state(self, age: int, state: int) -> None:
        """Record the state of a worker. It only advances, except that a new worker can reuse an old one's place."""
        place = age % PLACES
        if state == STARTING or state > self._states[place]:
            self._states[place] = state

    def has_ready(self) -> bool:
        return any(self._states.find(bytes([state]), 0) >= 0 for state in (READY, STUCK))

    def record_stop(self) -> None:
        self._states[PLACES] = STOPPING

    @property
    def is_stopping(self) -> bool:
        return self._states[PLACES] == STOPPING

    def wait_for_stop(self) -> bool:
        """Return True if the whole service stops. A worker can receive a signal before the master records the stop."""
        end = time.monotonic() + STOP_SECONDS
        while not self.is_stopping and time.monotonic() < end:
            time.sleep(STOP_SECONDS / 50)
        return self.is_stopping

    @property
    def reason(self) -> str:
        """Return the reason for the first failure among the workers that were started last, or ""."""
        return self._reason[1:].rstrip(b"\0").decode(errors="replace")

    @reason.setter
    def reason(self, reason: str) -> None:
        text = reason.replace("\n", " ").encode(errors="replace")[: REASON_BYTES - 1]
        self._reason[:] = bytes([bool(reason)]) + text.ljust(REASON_BYTES - 1, b"\0")

    def record_failure(self, reason: str) -> bool:
        """Record why this worker cannot start, unless another worker has done so. Return True if it is recorded."""
        if self._reason[0]:
            return False

        # The mark comes first, because other workers may fail at the same time.
        self._reason[0] = 1
        self.reason = reason
        return True
