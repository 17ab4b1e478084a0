"""Shared memory of all processes: the state of each worker, and the reason for a failed start."""

import mmap
import time

PLACES = 2**16  # more than the workers that exist at the same time
REASON_BYTES = 2**12
STOP_SECONDS = 0.5
# States of a worker, in order. A stuck worker still serves.
STARTING, READY, STUCK, STOPPING, ENDED = range(5)


class SharedState:
    """Shared state, created before the workers are forked.

    gunicorn numbers the workers. It calls the number the age of a worker.
    """

    def __init__(self) -> None:
        # One byte for the state of each worker, at its age modulo PLACES. The last byte is that of
        # the service.
        self._states = mmap.mmap(-1, PLACES + 1)
        # One byte, which is 1 after a failure, and the text.
        self._reason = mmap.mmap(-1, REASON_BYTES)

    def state(self, age: int) -> int:
        """Return the state of a worker."""
        return self._states[age % PLACES]

    def set_state(self, age: int, state: int) -> None:
        """Record the state of a worker.

        It only advances, except that a new worker can reuse an old one's place.
        """
        place = age % PLACES
        if state == STARTING or state > self._states[place]:
            self._states[place] = state

    def has_ready(self) -> bool:
        """Return True if a worker is ready, also if it is stuck."""
        is_ready = self._states.find(bytes([READY]), 0) >= 0
        return is_ready or self._states.find(bytes([STUCK]), 0) >= 0

    def record_stop(self) -> None:
        """Record that the whole service stops."""
        self._states[PLACES] = STOPPING

    @property
    def is_stopping(self) -> bool:
        return self._states[PLACES] == STOPPING

    def wait_for_stop(self) -> bool:
        """Return True if the whole service stops.

        A worker can receive a signal before the master records the stop.
        """
        end = time.monotonic() + STOP_SECONDS
        while not self.is_stopping and time.monotonic() < end:
            time.sleep(STOP_SECONDS / 50)
        return self.is_stopping

    @property
    def reason(self) -> str:
        """Return the reason for the first failure since clear_failure(), or ""."""
        return self._reason[1:].rstrip(b"\0").decode(errors="replace")

    def clear_failure(self) -> None:
        """Forget the reason. The master calls this before it starts workers."""
        self._reason[:] = bytes(REASON_BYTES)

    def record_failure(self, reason: str) -> bool:
        """Record why this worker cannot start, unless another worker has done so.

        Return True if it is recorded.
        """
        if self._reason[0]:
            return False

        # The mark comes first, because other workers may fail at the same time.
        self._reason[0] = 1
        text = reason.replace("\n", " ").encode(errors="replace")[: REASON_BYTES - 1]
        self._reason[1:] = text.ljust(REASON_BYTES - 1, b"\0")
        return True
