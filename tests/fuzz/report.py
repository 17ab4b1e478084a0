"""Report of the results of all rounds."""

from __future__ import annotations

from collections import Counter

from tests.fuzz.rounds import Result


class Report:
    """The collected results and faults."""

    def __init__(self) -> None:
        self.statuses: dict[str, Counter[str]] = {}
        self.slowest: dict[str, float] = {}
        self.faults: list[str] = []
        self.seconds = 0.0
        self.watched: list[str] = []

    @property
    def requests(self) -> int:
        return sum(sum(counts.values()) for counts in self.statuses.values())

    def add(self, result: Result) -> None:
        self.statuses.setdefault(result.kind, Counter()).update(result.statuses)
        self.slowest[result.kind] = max(self.slowest.get(result.kind, 0.0), result.slowest)
        if result.fault:
            self.faults.append(f"{result.fault}\n    {result.request}")

    def table(self) -> str:
        """Return a table of requests by kind and status, the slowest responses, the rate, and the workers' state."""
        lines = [f"{'kind':14}{'requests':>10}{'slowest':>10}  statuses"]
        for kind, counts in self.statuses.items():
            listed = ", ".join(f"{status}: {count:,}" for status, count in sorted(counts.items()))
            lines.append(
                f"{kind:14}{sum(counts.values()):>10,}{self.slowest[kind]:>8.2f} s  {listed}"
            )
        if self.seconds:
            rate = f"{self.requests / self.seconds:,.0f} requests/s for {self.seconds:,.0f} s"
            lines.append(
                f"{'all':14}{self.requests:>10,}{max(self.slowest.values()):>8.2f} s  {rate}"
            )
        return "\n".join([*lines, *self.watched, f"faults: {len(self.faults)}"])
