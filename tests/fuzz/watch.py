"""Workers of a running gunicorn and their memory, read from /proc."""

from __future__ import annotations

import time
from statistics import median

from tests.kit.processes import children, resident

MIB = 2**20
START_SECONDS = 30
# Samples to compare, as shares of all requests: one fifth after the warm-up, and the last fifth.
EARLY, LATE = (0.2, 0.4), (0.8, 1.0)
# Limits for growth. Without a leak, the allocator and threads cause 2 to 5 MiB on about 70 MiB. With two workers,
# 200,000 requests reveal a leak of about 400 bytes per request.
GROWTH, SLACK = 1.1, 16 * MIB


class Watch:
    """The `count` workers of the gunicorn master `master`, and samples of their memory by number of requests."""

    def __init__(self, master: int, count: int):
        self.master, self.workers = master, children(master)
        deadline = time.monotonic() + START_SECONDS
        while (
            len(self.workers) < count and time.monotonic() < deadline
        ):  # one worker can be ready before the others start
            time.sleep(0.05)
            self.workers = children(master)
        self.samples: list[tuple[int, dict[int, int]]] = []

    def sample(self, requests: int) -> None:
        self.samples.append((requests, {pid: resident(pid) for pid in self.workers}))

    def lost(self) -> set[int]:
        return self.workers - children(self.master)

    def memory(self) -> dict[int, tuple[float, float]]:
        """Return the median memory of each worker after the warm-up and at the end."""
        return {
            pid: (self.middle(pid, *EARLY), self.middle(pid, *LATE)) for pid in sorted(self.workers)
        }

    def middle(self, pid: int, start: float, end: float) -> float:
        total = self.samples[-1][0]
        within = [
            held for requests, held in self.samples if start * total <= requests <= end * total
        ]
        return median(held[pid] for held in within or [self.samples[-1][1]])

    def lines(self) -> list[str]:
        """Return report lines about each worker."""
        report = [f"workers: {len(self.workers)}, lost: {len(self.lost())}"]
        for pid, (early, late) in self.memory().items():
            report.append(
                f"worker {pid}: {early / MIB:.1f} MiB after the warm-up, {late / MIB:.1f} MiB at the end"
            )
        return report

    def faults(self) -> list[str]:
        found = [f"worker {pid} was lost" for pid in sorted(self.lost())]
        for pid, (early, late) in self.memory().items():
            if late > GROWTH * early + SLACK:
                found.append(f"worker {pid} grew from {early / MIB:.1f} to {late / MIB:.1f} MiB")
        return found
