"""What was tried and what came of it, as a table in Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import markdown, stamp
from chaos.load import Tally

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).with_name("README.md")
HEAD = ["what is tried", "held", "sent", "answered", "refused", "timed out", "lost", "p50 / p99, ms: REST, gRPC", "and"]

COUNTS = ["sent", "answered", "refused", "timed_out", "losses"]


@dataclass
class Outcome:
    """Of one scenario: tallies by protocol, figures that tell more, and what did not hold."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def check(self, held: bool, fault: str) -> None:
        if not held:
            self.faults.append(fault)

    def check_losses(self, most: int = 0) -> None:
        """At most so many requests of a protocol may be lost; some must be answered."""
        for protocol, tally in self.tallies.items():
            self.check(tally.answered > 0, f"{protocol}: nothing was answered")
            self.check(tally.losses <= most, f"{protocol}: {tally.losses} lost, {tally.lost}")


def row(name: str, title: str, seconds: float, outcome: Outcome) -> dict[str, Any]:
    """The scenario's row of results.json."""
    tallies = {protocol: asdict(tally) for protocol, tally in outcome.tallies.items()}
    return {"name": name, "title": title, "seconds": round(seconds, 1), **asdict(outcome), "tallies": tallies}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of results.json in Markdown."""
    return markdown([HEAD, *(cells(each) for each in rows)])


def cells(row: Mapping[str, Any]) -> list[str]:
    tallies = [Tally(**each) for each in row["tallies"].values()]
    sums = [sum(getattr(tally, name) for tally in tallies) for name in COUNTS]
    times = ", ".join(f"{tally.p50 * 1000:.0f} / {tally.p99 * 1000:.0f}" for tally in tallies)
    figures = "; ".join(f"{name}: {value}" for name, value in row["figures"].items())
    counts = [f"{count:,}" for count in sums] if tallies else [""] * len(sums)
    return [row["title"], "no" if row["faults"] else "yes", *counts, times, figures]


def write(folder: Path, rows: Sequence[Mapping[str, Any]], how: str) -> None:
    """results.json and results.md in `folder`."""
    made = {**stamp(), "how": how, "rows": list(rows)}
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(made, indent=1) + "\n")
    faults = "".join(f"\n{row['name']} did not hold: {fault}\n" for row in rows for fault in row["faults"])
    (folder / "results.md").write_text(f"On {made['date']}, {made['machine']}; {how}.\n\n{table(rows)}\n{faults}")


def quoted(page: str) -> str:
    """The table of the page."""
    return "\n".join(line for line in page.splitlines() if line.startswith("|"))


def quote(rows: Sequence[Mapping[str, Any]], page: Path = PAGE) -> None:
    """Puts the table into the page, in the place of the one that it has."""
    text = page.read_text()
    page.write_text(text.replace(quoted(text), table(rows)))
