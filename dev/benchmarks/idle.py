"""Memory of idle connections and their effect on the rate of S1: python -m dev.benchmarks.idle [--connections 10000]

One of two services has the idle connections. Both are measured in alternating rounds.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click

from dev.benchmarks.cases import CASES
from dev.benchmarks.load import check_tools
from dev.benchmarks.servers.start import ROOT, memory
from dev.benchmarks.versus import drive, serve
from tests.kit.processes import Running, wait_for, workers


@click.command(context_settings={"show_default": True})
@click.option("--connections", "count", default=10_000, help="Number of idle connections.")
@click.option("--rounds", default=7, help="Number of rounds.")
@click.option("--seconds", default=2, help="Duration of one measurement in seconds.")
def main(count: int, rounds: int, seconds: int) -> None:
    """Measure the effect of idle connections on the memory and the rate of a worker."""
    check_tools()
    case = next(case for case in CASES if case.name == "S1")
    server_cpu, client_cpu = sorted(os.sched_getaffinity(0))[:2]
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + 200
    if limit < needed:
        raise click.ClickException(
            f"too few open files: {limit}. Set ulimit -n {needed}, or --connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    options = f"--worker-connections {needed}"  # the default is about half of the open files
    with ExitStack() as stack:
        serving = [serve(ROOT, Path(sys.executable), case, server_cpu, options) for _ in range(2)]
        plain, crowded = map(stack.enter_context, serving)
        drive(case, crowded, 1, 8, client_cpu)
        before = memory(crowded.process.pid)
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", crowded.http_port)))
        wait_for(lambda: open_sockets(crowded) >= count)
        after = memory(crowded.process.pid)
        click.echo(
            f"{count} idle connections: {after - before:.1f} MiB, {(after - before) / count * 1024:.1f} KiB each"
        )
        ratios = []
        for number in range(rounds):
            rates = {}
            for running in (plain, crowded) if number % 2 else (crowded, plain):
                rates[running is crowded] = drive(case, running, seconds, 8, client_cpu).rate
            ratios.append(rates[True] / rates[False])
            click.echo(f"S1 {rates[True]:9.1f} {rates[False]:9.1f} requests/s")
        click.echo(f"S1 with idle connections / without: {median(ratios):.3f}")
        assert open_sockets(crowded) >= count


def open_sockets(running: Running) -> int:
    (worker,) = workers(running)
    return sum("socket:" in os.readlink(each) for each in Path(f"/proc/{worker}/fd").iterdir())


if __name__ == "__main__":
    main()
