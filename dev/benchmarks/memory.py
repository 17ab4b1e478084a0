"""Memory of requests in this service and in others: python -m dev.benchmarks.memory"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dev.benchmarks.cases import Case
from dev.benchmarks.load import check_tools, measure
from dev.benchmarks.memory_peers import (
    BINARY_GOAL,
    MEGABYTES,
    SETTLE_SECONDS,
    measure_servers,
    table,
)
from dev.benchmarks.report import RESULTS, markdown, measured_on, stamp
from dev.benchmarks.servers.start import MIB, processes
from dev.benchmarks.service import JSON, WAYS, drive, echo_case, serving
from tests.kit.processes import peak, reset_peak

MEGABYTE = 10**6
IN_FLIGHT = (1, 4)
# Maximum, as a multiple of the body. The goals for gRPC are in memory_peers.py, relative to the bare server.
GOALS = {JSON: 6.0, "REST binary": BINARY_GOAL}


def measure_bodies(megabytes: Sequence[int]) -> list[dict[str, Any]]:
    """Measure the peak memory by transport, body size and concurrency, each with a new service."""
    turns = [(way, size, count) for way in WAYS for size in megabytes for count in IN_FLIGHT]
    rows = []
    with click.progressbar(
        turns, label="bodies", item_show_func=lambda turn: str(turn or "")
    ) as bar:
        for way, size, count in bar:
            small = echo_case(way, 10_000)
            case = echo_case(way, size * MEGABYTE * 10_000 // len(small.body))
            row = {"way": way, "body": len(case.body), "megabytes": size, "in_flight": count}
            rows.append({**row, **measure_peak(case, small, count)})
    return rows


def measure_peak(case: Case, small: Case, in_flight: int) -> dict[str, Any]:
    """Return the peak memory as a multiple of the bodies in flight."""
    cpus = sorted(os.sched_getaffinity(0))
    with serving("echo()", cpus) as running:
        measure(
            small, running, 1, max(IN_FLIGHT), cpus
        )  # starts all threads and imports all modules
        pids = processes(running.process.pid)
        idle = reset_peak(pids)
        row = drive(
            case, running, 2, in_flight, cpus, is_warm=True
        )  # a warm-up's last requests would be in flight
        time.sleep(SETTLE_SECONDS)
        bodies = len(case.body) * in_flight
        most, kept = ((each - idle) / bodies for each in (peak(pids), reset_peak(pids)))
    return {"peak": most, "kept": kept, "idle_mib": idle / MIB, "failed": row.failed}


@click.command(context_settings={"show_default": True})
@click.option(
    "--body",
    "megabytes",
    multiple=True,
    default=(1, 8, 32),
    help="Size of a body in MB. 0 omits bodies.",
)
@click.option(
    "--peers/--no-peers",
    default=True,
    help="Compare with other servers, which are installed if necessary.",
)
@click.option("--output", type=Path, default=RESULTS, help="Directory for memory.json and .md.")
def main(megabytes: tuple[int, ...], peers: bool, output: Path) -> None:
    """Measure the memory of a request as a multiple of its body."""
    check_tools()
    made = stamp() | {"bodies": measure_bodies([size for size in megabytes if size])}
    if peers:
        made["servers"] = measure_servers(min(os.sched_getaffinity(0)))
    output.mkdir(parents=True, exist_ok=True)
    (output / "memory.json").write_text(json.dumps(made, indent=1) + "\n")
    (output / "memory.md").write_text(page(made))
    click.echo(page(made))
    for row in made["bodies"]:
        if row["peak"] > GOALS.get(row["way"], math.inf):
            click.echo(
                "{way}, {megabytes} MB, {in_flight} in flight: {peak:.1f} times, beyond the goal".format(
                    **row
                )
            )
    sys.exit(any(row["failed"] for row in made["bodies"]))


def page(made: dict[str, Any]) -> str:
    """Return the tables."""
    parts = [measured_on(made)]
    if rows := made["bodies"]:
        cells = {
            (
                row["way"],
                row["megabytes"],
                row["in_flight"],
            ): f"{row['peak']:.1f} ({row['kept']:.1f})"
            for row in rows
        }
        sizes = list(dict.fromkeys(row["megabytes"] for row in rows))
        columns = [(size, count) for size in sizes for count in IN_FLIGHT]
        head = ["request", *(f"{count} of {size} MB" for size, count in columns), "goal"]
        lines = [
            [way, *(cells[(way, *column)] for column in columns), f"{GOALS.get(way, '')}"]
            for way in WAYS
        ]
        parts.append(
            "## Peak memory above idle, divided by the size of the bodies in flight (memory that stays)"
        )
        parts.append(markdown([head, *lines]))
    if servers := made.get("servers"):
        parts.append(
            f"## Peak memory of a request of {MEGABYTES} MB by server, divided by the size of its body"
        )
        parts.append(f"{table(servers['rows'])}\n\nVersions: {servers['versions']}.")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
