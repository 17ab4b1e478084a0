"""Peak memory of a large request in this service, in bare Flask and grpcio, and in the peers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from dev.benchmarks.report import BARE, OURS, markdown
from dev.benchmarks.requests import RequestFailed, send_request
from dev.benchmarks.servers.start import MIB, Recipe, find_recipes, processes, start, versions
from dev.benchmarks.service import REST, WAYS, echo_case
from dev.benchmarks.support import is_unsupported
from tests.kit.processes import peak, reset_peak

MEGABYTES, REQUESTS = 32, 5
SMALL = 10_000  # elements of the requests before the measurement, which start threads and import modules
SETTLE_SECONDS = 0.5  # until a server has released the last response
SERVERS = [OURS, BARE, "MLServer", "KServe", "Triton"]
BINARY_GOAL, RAW_GOAL = (
    2.2,
    1.25,
)  # the maximum as a multiple of the body, and of the memory of the bare server
LEGEND = f"""{REQUESTS} requests, one after the other. The peak is that of all processes of a server. Memory that
processes share counts in each of them. The bare servers are a Flask route and a grpcio handler that return the body."""


def measure_servers(cpu: int) -> dict[str, Any]:
    """Return the peak memory by server and transport, each with a new server, and the versions of the servers."""
    recipes = [each for each in find_recipes(cpu) if each.name in SERVERS and "echo" in each.models]
    runs = [
        (recipe, way)
        for recipe in recipes
        for way in WAYS
        if transport_of(way) in recipe.transports
    ]
    rows = []
    with click.progressbar(
        runs, label="servers", item_show_func=lambda run: run and run[0].name
    ) as bar:
        for recipe, way in bar:
            rows.append({"server": recipe.name, "way": way, **measure_server(recipe, way, cpu)})
    return {"rows": rows, "versions": versions(recipes)}


def transport_of(way: str) -> str:
    return "http" if way in REST else "grpc"


def measure_server(recipe: Recipe, way: str, cpu: int) -> dict[str, Any]:
    """Return the peak memory as a multiple of the body, or the reason if the server does not support the request."""
    small = echo_case(way, SMALL)
    case = echo_case(way, MEGABYTES * 10**6 * SMALL // len(small.body))
    with start(recipe, cpu) as server, server.awake() as running:
        try:
            for _ in range(REQUESTS):
                send_request(small, running)
            pids = processes(running.process.pid)
            idle = reset_peak(pids)
            for _ in range(REQUESTS):
                send_request(case, running)
        except RequestFailed as error:
            if not is_unsupported(small, recipe.name, error):
                raise
            return {"reason": str(error)}
        time.sleep(SETTLE_SECONDS)
        return {
            "peak": (peak(pids) - idle) / len(case.body),
            "body": len(case.body),
            "idle_mib": idle / MIB,
        }


def goal(way: str, rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the maximum multiple for this service."""
    if way == "REST binary":
        return BINARY_GOAL
    bare = [row["peak"] for row in rows if (row["server"], row["way"]) == (BARE, way)]
    return RAW_GOAL * bare[0] if way == "gRPC raw" and bare else None


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the Markdown table, with the servers as columns."""
    cells = {
        (row["way"], row["server"]): f"{row['peak']:.1f}" if "peak" in row else "not supported"
        for row in rows
    }
    names = [name for name in SERVERS if any(row["server"] == name for row in rows)]
    lines = [["request", *names, "goal"]]
    for way in WAYS:
        most = goal(way, rows)
        lines.append(
            [way, *(cells.get((way, name), "") for name in names), f"{most:.1f}" if most else ""]
        )
    return f"{LEGEND}\n\n{markdown(lines)}"
