"""Which workers are ready, and whether all stop, seen by every process of the service: memory that they share."""

from __future__ import annotations

import math
import mmap
import os
import struct
from contextlib import suppress

# A process id, and a place for the next.
PLACE = struct.Struct("<I")
# As many as may be there at once, old ones and new ones of the most WORKERS that there can be, and more.
PLACES = 2 * 4096 // PLACE.size - 1


class Board:
    """Made before the workers are forked; each writes into a place of its own, its age modulo PLACES.

    The last place is the master's: whether all of the service stops. The master alone has `failed_at`: when a worker
    could not start, by time.monotonic(), `renewed_at`: the workers of that age, and older ones, are to be replaced,
    `reasons`: why those that were started last could not, whether the whole start `has_failed`, and the workers that
    are `excused`: their end is no failed start, for they were ready, or are sent away.
    """

    def __init__(self) -> None:
        self.failed_at = -math.inf
        self.renewed_at = 0
        self.has_served = False
        self.excused: set[int] = set()
        self.reasons: list[str] = []
        self.has_failed = False
        self._memory = mmap.mmap(-1, (PLACES + 1) * PLACE.size)
        self._tell, self._may_tell = os.pipe()
        self._read, self._write = os.pipe()
        for end in (self._tell, self._read, self._write):
            os.set_blocking(end, False)

    def renew(self, age: int) -> None:
        """Has the workers up to that `age` replaced, and at once."""
        self.renewed_at, self.failed_at = age, -math.inf

    def let_tell(self) -> None:
        """Lets one more process tell what failed, the first that does; what others have told is forgotten."""
        self.reasons.clear()
        self.may_tell()
        os.write(self._may_tell, b".")

    def may_tell(self) -> bool:
        """Whether nobody has told yet what fails alike in every worker."""
        with suppress(BlockingIOError):
            return bool(os.read(self._tell, 1))
        return False

    def report(self, reason: str) -> None:
        """Lets the master know why this process cannot start."""
        with suppress(BlockingIOError):  # so many have
            os.write(self._write, reason.replace("\n", " ").encode("utf-8", "replace") + b"\n")

    def hear(self) -> list[str]:
        """Adds to `reasons` what was reported meanwhile, and returns what is new of it."""
        lines, known = b"", len(self.reasons)
        with suppress(BlockingIOError):
            while True:
                lines += os.read(self._read, 2**16)
        for reason in lines.decode(errors="replace").split("\n")[:-1]:
            if reason not in self.reasons:
                self.reasons.append(reason)
        return self.reasons[known:]

    def show_stop(self) -> None:
        PLACE.pack_into(self._memory, PLACES * PLACE.size, 1)

    @property
    def is_stopping(self) -> bool:
        return PLACE.unpack_from(self._memory, PLACES * PLACE.size) == (1,)

    def show(self, age: int, is_ready: bool) -> None:
        """Says of this process, the worker of that `age`, whether it is ready."""
        place, pid = age % PLACES * PLACE.size, os.getpid()
        if is_ready:
            PLACE.pack_into(self._memory, place, pid)
        elif PLACE.unpack_from(self._memory, place) == (pid,):  # and not another's, of PLACES workers later
            PLACE.pack_into(self._memory, place, 0)

    def forget(self, pid: int) -> bool:
        """Forgets a worker, which has ended; says whether it was excused."""
        excused = pid in self.look() | self.excused
        self.excused.discard(pid)
        for place, (each,) in enumerate(PLACE.iter_unpack(self._memory[: PLACES * PLACE.size])):
            if each == pid:
                PLACE.pack_into(self._memory, place * PLACE.size, 0)
        return excused

    def look(self) -> set[int]:
        """ready(), which the master takes note of."""
        ready = self.ready()
        self.has_served |= bool(ready)
        self.excused |= ready
        return ready

    def ready(self) -> set[int]:
        """The process ids of the workers that are ready."""
        return {pid for (pid,) in PLACE.iter_unpack(self._memory[: PLACES * PLACE.size]) if pid}
