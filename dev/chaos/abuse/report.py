"""Report of the attacks: Markdown tables and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.benchmarks.report import markdown
from dev.chaos.abuse.runner import Measures
from dev.chaos.load import ROOT, Tally

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).with_name("README.md")
# Its table has fewer columns. Projects have this page, too.
RELIABILITY = ROOT / "docs" / "reliability.md"
HEAD = [
    "Attack",
    "Client has",
    "Passed",
    "Idle, MiB",
    "Peak above idle, MiB",
    "Limit, MiB",
    "10 s later, MiB",
    "CPU, s",
    "Log, KiB",
    "p99 of others, REST / gRPC, ms",
    "Slowest probe, ms",
]
DETAILS_HEAD = ["Attack", "Figure", "Value"]
SHORT_HEAD = [
    "Attack",
    "Client has",
    "Passed",
    "Memory above idle, MiB",
    "Limit, MiB",
    "p99 of others, REST / gRPC, ms",
]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return two Markdown tables from the rows of results.json: measures, and details."""
    lines = [HEAD]
    details = [DETAILS_HEAD]
    for row in rows:
        lines.append(_line(row))
        title = row["title"]
        for name, value in row["figures"].get("details", {}).items():
            details.append([title, name, str(value)])
            title = ""
    return f"{markdown(lines)}\n\n{markdown(details)}"


def short_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table for readers who operate a service."""
    lines = [SHORT_HEAD]
    for row in rows:
        line = _line(row)
        lines.append([line[0], line[1], line[2], line[4], line[5], line[9]])
    return markdown(lines)


def _line(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of an attack, in the order of HEAD."""
    passed = "no" if row["faults"] else "yes"
    if not row["figures"]:  # it ended with an exception
        return [row["title"], "", passed, *[""] * (len(HEAD) - 3)]

    measures = Measures(**row["figures"])
    limit = "" if measures.limit is None else f"{measures.limit:,.0f}"
    latencies = []
    for fields in row["tallies"].values():
        tally = Tally(**fields)
        latencies.append(f"{tally.p99 * 1000:.0f}")
    return [
        row["title"],
        measures.attacker,
        passed,
        f"{measures.idle:.0f}",
        f"{measures.peak:,.0f}",
        limit,
        f"{measures.later:,.0f}",
        f"{measures.cpu_seconds:.1f}",
        f"{measures.log_kib:,.0f}",
        " / ".join(latencies),
        f"{measures.slowest_probe * 1000:.0f}",
    ]
