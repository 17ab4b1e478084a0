"""Report of the results: a table with ratios, rows in JSON, and a plot."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from dev.benchmarks.cases import CASES, Case
from dev.benchmarks.load import Row
from dev.benchmarks.servers.start import Server

RESULTS = Path(__file__).parent / "results"
OURS, BARE = "this service", "bare"
OTHERS = ["MLServer", "KServe", "Triton", "BentoML", BARE]
LEGEND = """Each cell has the requests per second, the latency in ms as (p50 / p99), and the CPU time of the server per
request in µs. The columns *times* have the rate of this service divided by that of the other server."""
LABEL_WIDTH = 14  # characters, in the plot
TITLES = {case.name: case.title for case in CASES}


def stamp() -> dict[str, Any]:
    machine = f"{platform.machine()} with {os.cpu_count()} CPU cores and Python {platform.python_version()}"
    return {"date": date.today().isoformat(), "machine": machine}


def measured_on(made: dict[str, Any]) -> str:
    """Return a sentence with the date and the machine, from the result of `stamp()`."""
    return f"Measured on {made['date']}, on {made['machine']}."


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. The first line is the header."""
    return "\n".join(
        f"| {' | '.join(line)} |" for line in (lines[0], ["---"] * len(lines[0]), *lines[1:])
    )


class Results:
    """Rows by case and server. A ratio is the median of the ratios of all rounds."""

    def __init__(self, how: str) -> None:
        self.rows: dict[str, dict[str, list[Row]]] = {}
        self.starts: dict[str, dict[str, float]] = {}
        self.left_out: list[dict[str, str]] = []
        self.how = how

    def add_start(self, server: Server) -> None:
        self.starts[server.name] = {
            "ready_seconds": server.ready_seconds,
            "idle_mib": server.idle_mib,
        }

    def add(self, case: Case, name: str, row: Row) -> None:
        self.rows.setdefault(case.name, {}).setdefault(name, []).append(row)

    def leave_out(self, case: Case, name: str, reason: str) -> None:
        self.left_out.append({"case": case.name, "server": name, "reason": reason})

    @property
    def failed(self) -> bool:
        return any(
            row.failed
            for servers in self.rows.values()
            for rows in servers.values()
            for row in rows
        )

    def ratio(self, case: str, other: str) -> float | None:
        """Return the rate of this service divided by that of another server.

        There is no ratio if the other server was too slow to complete a request in a round.
        """
        servers = self.rows[case]
        if OURS not in servers or other not in servers:
            return None
        if not all(row.rate for row in servers[other]):
            return None
        return median(
            ours.rate / theirs.rate
            for ours, theirs in zip(servers[OURS], servers[other], strict=True)
        )

    @property
    def others(self) -> list[str]:
        """Return the names of the other servers that could be started."""
        return [name for name in OTHERS if name in self.starts]

    def table(self) -> str:
        """Return the Markdown table."""
        names = [OURS, *self.others]
        lines = [["case", *names, *(f"times {name}" for name in self.others)]]
        for case in self.rows:
            cells = [self.cell(case, name) for name in names]
            ratios = [self.ratio(case, other) for other in self.others]
            lines.append(
                [
                    f"{case} {TITLES[case]}",
                    *cells,
                    *(f"{ratio:.2f}" if ratio else "" for ratio in ratios),
                ]
            )
        for label, key in (("ready after, s", "ready_seconds"), ("idle memory, MiB", "idle_mib")):
            values = [self.starts[name][key] for name in names]
            ratios = [values[0] / value for value in values[1:]]
            lines.append(
                [
                    label,
                    *(f"{value:.2f}" for value in values),
                    *(f"{ratio:.2f}" for ratio in ratios),
                ]
            )
        return f"{LEGEND}\n\n{markdown(lines)}"

    def cell(self, case: str, name: str) -> str:
        rows = self.rows[case].get(name)
        if not rows:
            return "not supported"
        rate, p50, p99, cpu = (
            median(getattr(row, key) for row in rows) for key in ("rate", "p50", "p99", "cpu")
        )
        return f"{rate:,.0f} ({p50:.2f} / {p99:.2f}), {cpu:,.0f} µs"

    def write(self, folder: Path) -> None:
        """Write results.json, results.md and results.png into `folder`."""
        made: dict[str, Any] = {**stamp(), "how": self.how, "starts": self.starts}
        made["rows"] = [
            {"case": case, "server": name, "round": index, **asdict(row)}
            for case, servers in self.rows.items()
            for name, rows in servers.items()
            for index, row in enumerate(rows)
        ]
        made["left out"] = self.left_out
        (folder / "results.json").write_text(json.dumps(made, indent=1) + "\n")
        left_out = "".join(
            f"\n{each['server']} does not support {each['case']}: {each['reason']}\n"
            for each in self.left_out
        )
        (folder / "results.md").write_text(
            f"{measured_on(made)} {self.how}\n\n{self.table()}\n{left_out}"
        )
        self.plot(folder / "results.png")

    def plot(self, path: Path) -> None:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(11, 4), layout="constrained")
        width = 0.8 / len(self.others)
        for index, other in enumerate(self.others):
            found = [
                (place, ratio)
                for place, case in enumerate(self.rows)
                if (ratio := self.ratio(case, other))
            ]
            places = [place + (index + 0.5) * width - 0.4 for place, _ in found]
            bars = axes.bar(places, [ratio for _, ratio in found], width, label=f"times {other}")
            axes.bar_label(bars, [f"{ratio:.1f}" for _, ratio in found], fontsize=7)
        axes.set_yscale("log")
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(
            range(len(self.rows)),
            [f"{case}\n{fill(TITLES[case], LABEL_WIDTH)}" for case in self.rows],
            fontsize=7,
        )
        axes.set_ylabel("requests per second, times the other server's")
        axes.set_title(
            "This service compared with peers, and with Flask or grpcio without a model (bare)",
            fontsize=9,
        )
        axes.legend(fontsize=8)
        figure.savefig(path, dpi=150)
        plt.close(figure)
