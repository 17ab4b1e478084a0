"""Report of the results: Markdown tables and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dev.benchmarks.report import markdown, measured_on, stamp
from dev.chaos.load import Tally

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).with_name("README.md")
HEAD = [
    "Fault",
    "Passed",
    "Sent",
    "Succeeded",
    "Rejected",
    "Timed out",
    "Lost",
    "REST p50 / p99, gRPC p50 / p99, ms",
]
FIGURES_HEAD = ["Fault", "Figure", "Value"]
# The part of dev/chaos/README.md that a full run replaces.
TABLES = re.compile(r"(?<=<!-- tables -->\n\n).*(?=\n\n<!-- end of tables -->)", re.DOTALL)
COUNTS = ["sent", "succeeded", "rejected", "timed_out", "losses"]


@dataclass
class Outcome:
    """The outcome of one scenario: tallies by protocol, additional figures and failed checks."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def check(self, held: bool, fault: str) -> None:
        if not held:
            self.faults.append(fault)

    def check_losses(self, most: int = 0) -> None:
        """Check that some requests of each protocol succeeded and at most `most` were lost."""
        for protocol, tally in self.tallies.items():
            self.check(tally.succeeded > 0, f"{protocol}: no request succeeded")
            self.check(tally.losses <= most, f"{protocol}: {tally.losses} lost, {tally.lost}")


def row(name: str, title: str, seconds: float, outcome: Outcome) -> dict[str, Any]:
    """Return the scenario's row for results.json."""
    tallies = {protocol: asdict(tally) for protocol, tally in outcome.tallies.items()}
    return {
        "name": name,
        "title": title,
        "seconds": round(seconds, 1),
        **asdict(outcome),
        "tallies": tallies,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return two Markdown tables from the rows of results.json: counts and latencies, and other figures."""
    figures = []
    for row in rows:
        for index, (name, value) in enumerate(row["figures"].items()):
            figures.append(["" if index else row["title"], name, str(value)])
    counts = markdown([HEAD, *(cells(each) for each in rows)])
    return f"{counts}\n\n{markdown([FIGURES_HEAD, *figures])}" if figures else counts


def cells(row: Mapping[str, Any]) -> list[str]:
    tallies = [Tally(**each) for each in row["tallies"].values()]
    sums = [sum(getattr(tally, name) for tally in tallies) for name in COUNTS]
    times = ", ".join(f"{tally.p50 * 1000:.0f} / {tally.p99 * 1000:.0f}" for tally in tallies)
    counts = [f"{count:,}" for count in sums] if tallies else [""] * len(sums)
    return [row["title"], "no" if row["faults"] else "yes", *counts, times]


def write(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    how: str,
    make_table: Callable[[Sequence[Mapping[str, Any]]], str] = table,
) -> None:
    """Write results.json and results.md into `folder`."""
    made = {**stamp(), "how": how, "rows": list(rows)}
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(made, indent=1) + "\n")
    faults = "".join(
        f"\n{row['name']} failed: {fault}\n" for row in rows for fault in row["faults"]
    )
    (folder / "results.md").write_text(f"{measured_on(made)} {how}\n\n{make_table(rows)}\n{faults}")


def quoted(page: str) -> str:
    """Return the tables of the page."""
    found = TABLES.search(page)
    return found[0] if found else ""


def quote(
    rows: Sequence[Mapping[str, Any]],
    page: Path = PAGE,
    make_table: Callable[[Sequence[Mapping[str, Any]]], str] = table,
) -> None:
    """Replace the tables in the page."""
    page.write_text(TABLES.sub(lambda _: make_table(rows), page.read_text()))
