"""Memory of requests, and a check for leaks under load: python -m dev.benchmarks.memory"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from dev.benchmarks.cases import Case
from dev.benchmarks.load import check_tools, measure
from dev.benchmarks.memory_peers import (
    BINARY_GOAL,
    MEGABYTES,
    SETTLE_SECONDS,
    measure_servers,
    table,
)
from dev.benchmarks.mixed import LIMIT, make_calls, send_at_random
from dev.benchmarks.report import RESULTS, markdown, measured_on, stamp
from dev.benchmarks.servers.start import MIB, memory, processes
from dev.benchmarks.service import JSON, WAYS, drive, echo_case, serving
from tests.kit.processes import peak, reset_peak

MEGABYTE = 10**6
IN_FLIGHT = (1, 4)
# Maximum, as a multiple of the body. The goals for gRPC are in memory_peers.py, relative to the bare server.
GOALS = {JSON: 6.0, "REST binary": BINARY_GOAL}
SAMPLES, SAMPLE_SECONDS = 100, 2  # the minimum number of samples, and the maximum interval
MOST_GROWTH, MOST_GROWTH_MIB = 0.05, 4


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


def measure_load(minutes: float, clients: int) -> dict[str, Any]:
    """Sample the memory of the service under a mixed load."""
    seconds = minutes * 60
    answered: Counter[str] = Counter()
    wrong: list[str] = []
    calls = make_calls()
    step = min(SAMPLE_SECONDS, seconds / SAMPLES)
    with serving("echo()", sorted(os.sched_getaffinity(0)), MAX_REQUEST_BYTES=LIMIT) as running:
        begun = time.monotonic()
        arguments = running, calls, begun + seconds, answered, wrong
        threads = [threading.Thread(target=send_at_random, args=arguments) for _ in range(clients)]
        for thread in threads:
            thread.start()
        samples = []
        with click.progressbar(range(int(seconds / step)), label="load") as bar:
            for index in bar:
                time.sleep(max(0, begun + (index + 1) * step - time.monotonic()))
                samples.append((time.monotonic() - begun, memory(running.process.pid)))
        for thread in threads:
            thread.join()
    return {
        "minutes": minutes,
        "answered": answered,
        "wrong": wrong,
        "samples": samples,
        **judge(samples),
    }


def judge(samples: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the growth in the second half, and compare the last tenth with the second tenth."""
    taken, held = np.array(samples).T
    tenth, half = len(held) // 10, len(held) // 2
    first, last = float(np.median(held[tenth : 2 * tenth])), float(np.median(held[-tenth:]))
    slope = float(np.polyfit(taken[half:] / 60, held[half:], 1)[0])
    is_steady = last - first <= max(MOST_GROWTH * first, MOST_GROWTH_MIB)
    return {"first_mib": first, "last_mib": last, "mib_a_minute": slope, "is_steady": is_steady}


@click.command(context_settings={"show_default": True})
@click.option("--minutes", default=10.0, help="Duration of the load in minutes. 0 omits it.")
@click.option("--clients", default=6, help="Number of clients.")
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
@click.option(
    "--output", type=Path, default=RESULTS, help="Directory for memory.json, .md and .png."
)
def main(
    minutes: float, clients: int, megabytes: tuple[int, ...], peers: bool, output: Path
) -> None:
    """Measure the memory of a request as a multiple of its body, and check for leaks under a mixed load.

    The exit status is 1 if the service needs more memory at the end than after the first tenth.
    """
    check_tools()
    made = stamp() | {"bodies": measure_bodies([size for size in megabytes if size])}
    if peers:
        made["servers"] = measure_servers(min(os.sched_getaffinity(0)))
    if minutes:
        made["load"] = measure_load(minutes, clients)
    output.mkdir(parents=True, exist_ok=True)
    (output / "memory.json").write_text(json.dumps(made, indent=1) + "\n")
    (output / "memory.md").write_text(page(made))
    plot(made, output / "memory.png")
    click.echo(page(made))
    for row in made["bodies"]:
        if row["peak"] > GOALS.get(row["way"], math.inf):
            click.echo(
                "{way}, {megabytes} MB, {in_flight} in flight: {peak:.1f} times, beyond the goal".format(
                    **row
                )
            )
    load = made.get("load", {})
    click.echo("\n".join(load.get("wrong", [])[:20]), nl=False)
    sys.exit(
        not load.get("is_steady", True)
        or bool(load.get("wrong"))
        or any(row["failed"] for row in made["bodies"])
    )


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
    if load := made.get("load"):
        head = [
            "requests",
            "MiB after the warm-up",
            "MiB at the end",
            "MiB per minute, second half",
        ]
        values = (load["first_mib"], load["last_mib"], load["mib_a_minute"])
        line = [f"{sum(load['answered'].values()):,}", *(f"{value:.2f}" for value in values)]
        parts.append(f"## Memory during a mixed load of {load['minutes']:g} minutes")
        parts.append(markdown([head, line]))
    return "\n\n".join(parts) + "\n"


def plot(made: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for index, way in enumerate(WAYS):
        rows = [row for row in made["bodies"] if row["way"] == way]
        places = [place + (index - 1.5) / 5 for place in range(len(rows))]
        left.bar(places, [row["peak"] for row in rows], 1 / 5, label=way)
        left.set_xticks(
            range(len(rows)), [f"{row['in_flight']} of\n{row['megabytes']} MB" for row in rows]
        )
    for goal in set(GOALS.values()):
        left.axhline(goal, color="black", linewidth=0.8, linestyle="dotted")
    left.set_title(
        "Peak above idle, as a multiple of the bodies in flight (dotted: goals)", fontsize=9
    )
    left.legend(fontsize=7)
    if load := made.get("load"):
        seconds, held = np.array(load["samples"]).T
        right.plot(seconds / 60, held, linewidth=0.8)
        right.set_ylim(0, max(held) * 1.1)
        right.set_xlabel("minutes", fontsize=8)
    right.set_title("MiB under a mixed load", fontsize=9)
    for axes in (left, right):
        axes.tick_params(labelsize=7)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
