"""Throughput with batching for a model with constant time per call: python -m dev.benchmarks.batching"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from dev.benchmarks.load import check_tools
from dev.benchmarks.report import RESULTS, markdown, measured_on, stamp
from dev.benchmarks.servers import models
from dev.benchmarks.service import WAYS, drive, in_way, serving

CONNECTIONS = 32
GOAL = 5
SETTINGS: dict[str, dict[str, int]] = {"off": {}, "on": {"MAX_BATCH_SIZE": CONNECTIONS}}


@click.command()
@click.option("--seconds", default=3, help="Duration of one measurement in seconds.")
@click.option("--output", type=Path, default=RESULTS, help="Directory for batching.json and .md.")
def main(seconds: int, output: Path) -> None:
    """Measure the rate with and without MAX_BATCH_SIZE, for a model that takes 5 ms per call, with 32 connections.

    The model runs one call at a time. The exit status is 1 if the gain is below the goal or if a request failed.
    """
    check_tools()
    *cpus, driver = sorted(os.sched_getaffinity(0))
    x = np.array([[0.1, 0.2, 0.3, 0.4]])
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        case = in_way(way, "linear", x, models.linear(x.astype("<f4")))
        row: dict[str, Any] = {"way": way, "failed": 0}
        for name, settings in SETTINGS.items():
            with serving("accelerated()", cpus or [driver], **settings) as running:
                measured = drive(case, running, seconds, CONNECTIONS, [driver])
            row |= {
                name: measured.rate,
                f"{name}_p99": measured.p99,
                "failed": row["failed"] + measured.failed,
            }
        rows.append({**row, "gain": row["on"] / row["off"]})
    made = stamp() | {"goal": GOAL, "rows": rows}
    output.mkdir(parents=True, exist_ok=True)
    (output / "batching.json").write_text(json.dumps(made, indent=1) + "\n")
    (output / "batching.md").write_text(page(made))
    click.echo(page(made))
    sys.exit(any(row["gain"] < GOAL or row["failed"] for row in rows))


def page(made: dict[str, Any]) -> str:
    head = [
        "request",
        "req/s without batching",
        "req/s with batching",
        "gain",
        "p99 without",
        "p99 with",
    ]
    lines = [
        [
            row["way"],
            f"{row['off']:,.0f}",
            f"{row['on']:,.0f}",
            f"{row['gain']:.1f} times",
            f"{row['off_p99']:.0f} ms",
            f"{row['on_p99']:.0f} ms",
        ]
        for row in made["rows"]
    ]
    description = (
        "The model takes 5 ms per call, with one call at a time. One worker serves 32 connections."
    )
    return f"{description} {measured_on(made)}\n\n{markdown([head, *lines])}\n"


if __name__ == "__main__":
    main()
