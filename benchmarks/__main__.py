"""Speed beside MLServer, KServe and the bare limits, case by case: make bench, or python -m benchmarks --help"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks.ask import Unsupported, ask
from benchmarks.cases import CASES, Case
from benchmarks.load import WARM_UP_SECONDS, check_tools, measure
from benchmarks.report import RESULTS, Results
from benchmarks.servers.start import Server, start_all, start_alone, versions

# A server that answers so few requests a second is measured longer, or the window's edges would count against it.
SLOW_RATE, SLOW_TIMES = 60, 5


@click.command(context_settings={"show_default": True})
@click.option("--rounds", default=5, help="How often each case is measured on each server, all of them in turn.")
@click.option("--seconds", default=6, help="How long a measurement takes.")
@click.option("--connections", default=8, help="Connections that always wait for an answer.")
@click.option("--case", "names", multiple=True, metavar="NAME", help="Only this case, such as S1.")
@click.option("--quick", is_flag=True, help="One round of a second: three minutes in all.")
@click.option("--output", type=Path, default=RESULTS, help="The folder for results.json, .md and .png.")
def main(rounds: int, seconds: int, connections: int, names: tuple[str, ...], quick: bool, output: Path) -> None:
    """Measures this service beside MLServer, KServe, and what Flask and grpcio do bare.

    Each server runs on one processor, with one worker, and wrk and h2load on another. The servers take turns, and only
    the one that is measured runs. The answers are checked first; a measurement comes after a second of the same.
    """
    check_tools()
    rounds, seconds = (1, 1) if quick else (rounds, seconds)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise click.ClickException("two processors are needed: one for the servers, one for what drives them")
    measured = f"rounds: {rounds}, of {seconds} s (slow servers {SLOW_TIMES} times that), {connections} connections"
    results = Results(f"{measured}; {versions()}")
    click.echo("starting every server, alone and then all")
    for server in start_alone(cpus[0]):
        results.add_start(server)
    with ExitStack() as stack:
        servers = start_all(stack, cpus[0])
        turns = [
            (case, name, server)
            for case in CASES
            if not names or case.name in names
            for (name, transport, model), server in servers.items()
            if (transport, model) == (case.transport, case.model)
        ]
        turns = [turn for turn in turns if answers(*turn, results)]
        with click.progressbar(turns * rounds, label="measuring", item_show_func=shown) as bar:
            for case, name, server in bar:
                with server.awake() as running:
                    warm = measure(case, running, WARM_UP_SECONDS, connections, cpus[1:2])
                    long = seconds * (SLOW_TIMES if warm.rate < SLOW_RATE else 1)
                    row = measure(case, running, long, connections, cpus[1:2])
                results.add(case, name, row)
    output.mkdir(exist_ok=True)
    results.write(output)
    click.echo(f"\n{results.table()}")
    sys.exit(results.failed)


def shown(turn: tuple[Case, str, Server] | None) -> str:
    return f"{turn[0].name} {turn[1]}" if turn else ""


def answers(case: Case, name: str, server: Server, results: Results) -> bool:
    """Whether the server answers the case, and rightly; a wrong answer ends the run."""
    with server.awake() as running:
        try:
            case.check(*ask(case, running))
        except Unsupported as error:
            results.leave_out(case, name, str(error))
            return False
        except Exception as error:
            if name == "bare":
                return True
            raise click.ClickException(f"{case.name}: {name} answers wrongly: {error}") from error
    return True


if __name__ == "__main__":
    main()
