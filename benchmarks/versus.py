"""Speed of this checkout against another one, in alternating runs: python -m benchmarks.versus OTHER_DIRECTORY

Use it to see what a change costs: `git worktree add ../before HEAD~1`, install that checkout's dependencies, and
compare. Ratios are of pairs of runs in the same round, so that a machine that gets slower does not matter.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click

from benchmarks.ask import ask
from benchmarks.cases import CASES, Case
from benchmarks.load import check_tools, measure
from benchmarks.servers.start import ROOT
from tests.service.processes import Running, free_ports, started, workers

NAMES = ("S1", "S2", "G1", "G2", "B1", "M1")
TICKS = os.sysconf("SC_CLK_TCK")


@click.command(context_settings={"show_default": True})
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--python", type=Path, help="Python of the other checkout. [default: its .venv/bin/python]")
@click.option("--rounds", default=9, help="Number of rounds. Each measures every case on both checkouts.")
@click.option("--seconds", default=2, help="Duration of one measurement in seconds.")
@click.option("--connections", default=8, help="Number of connections that always wait for a response.")
@click.option("--case", "names", multiple=True, default=NAMES, metavar="NAME", help="Only this case, such as S1.")
def main(other: Path, python: Path | None, rounds: int, seconds: int, connections: int, names: tuple[str, ...]) -> None:
    """Compare the request rate and the CPU time per request with those of the checkout in OTHER."""
    check_tools()
    cases = [case for case in CASES if case.name in names]
    server_cpu, client_cpu = sorted(os.sched_getaffinity(0))[:2]
    rates: dict[str, list[float]] = {case.name: [] for case in cases}
    costs: dict[str, list[float]] = {case.name: [] for case in cases}
    with ExitStack() as stack:
        services = {
            (side, model): stack.enter_context(serve(folder, binary, model, server_cpu))
            for side, folder, binary in (
                ("this", ROOT, Path(sys.executable)),
                ("other", other, python or other / ".venv/bin/python"),
            )
            for model in {case.model for case in cases}
        }
        for number in range(rounds):
            for case in cases:
                sides = ("this", "other") if number % 2 else ("other", "this")
                rate, cost = {}, {}
                for side in sides:
                    running = services[side, case.model]
                    rate[side], cost[side] = drive(case, running, seconds, connections, client_cpu)
                rates[case.name].append(rate["this"] / rate["other"])
                costs[case.name].append(cost["this"] / cost["other"])
                click.echo(f"{case.name} {rate['this']:9.1f} {rate['other']:9.1f} requests/s, ", nl=False)
                click.echo(f"{cost['this']:8.1f} {cost['other']:8.1f} µs CPU per request")
    click.echo("\n| case | rate, this / other (median) | CPU time per request, this / other (median) |\n|---|---|---|")
    for name in rates:
        click.echo(f"| {name} | {median(rates[name]):.3f} | {median(costs[name]):.3f} |")


def serve(folder: Path, python: Path, model: str, cpu: int):  # type: ignore[no-untyped-def]
    """Start the service of the checkout in `folder` on one core."""
    http, grpc = free_ports(2)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": http, "GRPC_PORT": grpc, "WORKERS": 1, "LOG_LEVEL": "WARNING"}
    settings |= {"DRAIN_SECONDS": 0, "PYTHONPATH": folder}
    command = ["taskset", "-c", str(cpu), python, "-m", "gunicorn", f"benchmarks.servers.ours:{model}()"]
    return started(list(map(str, command)), folder, settings)


def drive(case: Case, running: Running, seconds: int, connections: int, cpu: int) -> tuple[float, float]:
    """Return the requests per second, and the workers' CPU time per request in microseconds."""
    case.check(*ask(case, running.http, running.grpc))
    before = cpu_seconds(running)
    row = measure(case, running.http, running.grpc, seconds, connections, [cpu])
    if row.failed:
        raise click.ClickException(f"{case.name}: {row.failed} requests failed")
    return row.rate, (cpu_seconds(running) - before) / (row.rate * seconds) * 1e6


def cpu_seconds(running: Running) -> float:
    """Return the CPU time of the workers so far, in seconds."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in workers(running)]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS


if __name__ == "__main__":
    main()
