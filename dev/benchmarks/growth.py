"""Cost of a request by size, and rate by number of workers: python -m dev.benchmarks.growth"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import floor, log10
from pathlib import Path
from typing import Any

import click
import numpy as np

from dev.benchmarks.cases import CASES, Case, generator
from dev.benchmarks.load import check_tools, find_cpus
from dev.benchmarks.report import RESULTS, markdown, measured_on, stamp
from dev.benchmarks.servers import models
from dev.benchmarks.service import WAYS, drive, echo_case, in_way, serving, text_case
from grpc_service.messages import ModelInferRequest

SMALL = [case for case in CASES if case.name in ("S1", "G1")]
CONNECTIONS = 8
TITLES = {
    "elements": "Size of an FP32 tensor that the model returns",
    "inputs": "Number of inputs, each FP32 [1,4]",
    "rows": "Rows of a batch [N,4] for a linear model",
    "texts": "Number of texts of about 45 bytes that the model returns",
    "workers": "Workers, [1,4]. The service and the load generator share all CPU cores",
    "concurrency": "MAX_CONCURRENCY of one worker, [1,4]",
    "concurrency of a model that waits": "MAX_CONCURRENCY of one worker, [1,4], with a model that waits 5 ms",
}
# Unit of the time per element, input, row or text, and the number of these units per millisecond.
EACH = {"elements": ("ns", 1e6), "inputs": ("µs", 1e3), "rows": ("µs", 1e3), "texts": ("µs", 1e3)}


@dataclass(frozen=True)
class Point:
    """A service to measure: section, position on the axis, application and cases."""

    section: str
    at: int
    app: str
    cases: Callable[[], list[Case]]
    connections: int = 1
    settings: dict[str, int] = field(default_factory=dict)
    is_shared: bool = False  # the service and the load generator share the CPU cores


def plan(largest: int) -> Iterator[Point]:
    for size in (10**power for power in range(8)):
        if size <= largest:
            yield Point("elements", size, "echo()", partial(echoes, size))
    for count in (1, 4, 16, 64, 256):
        yield Point("inputs", count, f"total({count})", partial(totals, count))
    for rows in (4**power for power in range(7)):
        yield Point("rows", rows, "linear()", partial(batches, rows))
    for count in (4**power for power in range(7)):
        yield Point("texts", count, "texts()", partial(texts, count))
    for workers in (1, 2):
        yield Point(
            "workers",
            workers,
            "linear()",
            lambda: SMALL,
            CONNECTIONS,
            {"WORKERS": workers},
            is_shared=True,
        )
    for section, app in (
        ("concurrency", "linear()"),
        ("concurrency of a model that waits", "waiting()"),
    ):
        for count in (1, 2, 4, 8):
            yield Point(section, count, app, lambda: SMALL, CONNECTIONS, {"MAX_CONCURRENCY": count})


def echoes(size: int) -> list[Case]:
    return [echo_case(way, size) for way in WAYS]


def batches(rows: int) -> list[Case]:
    x = generator.uniform(0, 1, (rows, 4)).round(3)
    return [in_way(way, "linear", x, models.linear(x.astype("<f4"))) for way in WAYS]


def texts(count: int) -> list[Case]:
    return [text_case(way, count) for way in WAYS]


def totals(count: int) -> list[Case]:
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    return [repeated(in_way(way, "total", x, count * x), count) for way in WAYS]


def repeated(case: Case, count: int) -> Case:
    """Return a case with `count` copies of the input, named x0, x1 and so on."""
    if case.transport == "grpc":
        request = ModelInferRequest.FromString(case.body)
        tensor, raws = request.inputs.pop(), list(request.raw_input_contents)
        request.raw_input_contents.extend(raws * (count - 1))
        for index in range(count):
            tensor.name = f"x{index}"
            request.inputs.append(tensor)
        return replace(case, body=request.SerializeToString())
    head, raw = case.body[: case.header_length], case.body[case.header_length or len(case.body) :]
    request = json.loads(head)
    request["inputs"] = [{**request["inputs"][0], "name": f"x{index}"} for index in range(count)]
    head = json.dumps(request).encode()
    return replace(case, body=head + raw * count, header_length=case.header_length and len(head))


@click.command(context_settings={"show_default": True})
@click.option("--seconds", default=4, help="Duration of one measurement in seconds.")
@click.option(
    "--section",
    "sections",
    multiple=True,
    type=click.Choice(list(TITLES)),
    help="Measure this section.",
)
@click.option("--largest", default=10**7, help="Number of elements of the largest tensor.")
@click.option(
    "--quick", is_flag=True, help="Measure every third point for one second. Takes two minutes."
)
@click.option("--output", type=Path, default=RESULTS, help="Directory for growth.json and .md.")
def main(seconds: int, sections: tuple[str, ...], largest: int, quick: bool, output: Path) -> None:
    """Measure the time of a request by its size, and the rate by number of workers and concurrency.

    The service runs on one CPU core and wrk and h2load run on another, except in the section on
    workers.
    """
    check_tools()
    cpus = find_cpus()
    points = []
    for section in sections or TITLES:
        found = [point for point in plan(largest) if point.section == section]
        points += found[::3] if quick and len(found) > 2 else found
    rows = []
    with click.progressbar(points, label="measuring", item_show_func=shown) as bar:
        for point in bar:
            with serving(
                point.app, cpus if point.is_shared else cpus[:1], **point.settings
            ) as running:
                for case in point.cases():
                    driving = cpus if point.is_shared else cpus[1:2]
                    row = drive(case, running, 1 if quick else seconds, point.connections, driving)
                    rows.append(
                        {"section": point.section, "at": point.at, "way": case.title, **asdict(row)}
                    )
    output.mkdir(parents=True, exist_ok=True)
    write(rows, output)
    sys.exit(any(row["failed"] for row in rows))


def shown(point: Point | None) -> str:
    return f"{point.at} {point.section}" if point else ""


def write(rows: list[dict[str, Any]], folder: Path) -> None:
    made = {**stamp(), "rows": rows}
    (folder / "growth.json").write_text(json.dumps(made, indent=1) + "\n")
    parts = [measured_on(made)]
    sections = {section: [row for row in rows if row["section"] == section] for section in TITLES}
    sections = {section: found for section, found in sections.items() if found}
    for section, found in sections.items():
        parts.append(f"## {TITLES[section]}\n\n{markdown(table(section, found))}")
    (folder / "growth.md").write_text("\n\n".join(parts) + "\n")
    click.echo("\n\n".join(parts))


def table(section: str, rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return one row per point: the median time if the section has a unit, otherwise the rate."""
    if section in EACH:
        unit, scale = EACH[section]
        head = "{way}: ms (" + unit + " each)"
        cells = {
            (
                row["at"],
                row["way"],
            ): f"{digits(row['p50'])} ({digits(row['p50'] * scale / row['at'])})"
            for row in rows
        }
    else:
        head = "{way}: req/s (p50 / p99 ms)"
        cells = {
            (row["at"], row["way"]): f"{row['rate']:,.0f} ({row['p50']:.2f} / {row['p99']:.2f})"
            for row in rows
        }
    ways, points = (list(dict.fromkeys(row[key] for row in rows)) for key in ("way", "at"))
    lines = [[f"{at:,}", *(cells[at, way] for way in ways)] for at in points]
    return [[section.split()[0], *(head.format(way=way) for way in ways)], *lines]


def digits(value: float) -> str:
    """Return the number with three significant digits, or with all digits before the point."""
    return f"{value:,.{max(0, 2 - floor(log10(value)))}f}"


if __name__ == "__main__":
    main()
