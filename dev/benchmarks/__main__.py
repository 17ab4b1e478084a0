"""Speed compared with MLServer, KServe, Triton, BentoML and bare servers: make bench, or python -m dev.benchmarks --help"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from dev.benchmarks.cases import CASES, Case
from dev.benchmarks.load import WARM_UP_SECONDS, check_tools, find_cpus, measure
from dev.benchmarks.report import RESULTS, TITLES, Results
from dev.benchmarks.requests import RequestFailed, send_request
from dev.benchmarks.servers.bentoml.cases import CASES as BENTOML_CASES
from dev.benchmarks.servers.start import Server, find_recipes, start_all, start_alone, versions
from dev.benchmarks.support import is_unsupported

# Slower servers are measured longer. Otherwise, the requests at the edges of the measurement distort the rate.
SLOW_RATE, SLOW_TIMES = 60, 5
# Cases for servers without the Open Inference Protocol.
OWN_CASES = {("BentoML", case.name): case for case in BENTOML_CASES}


@click.command(context_settings={"show_default": True})
@click.option(
    "--rounds", default=5, help="Number of rounds. Each measures every case on every server."
)
@click.option("--seconds", default=6, help="Duration of one measurement in seconds.")
@click.option(
    "--connections", default=8, help="Number of connections that always wait for a response."
)
@click.option(
    "--case",
    "names",
    multiple=True,
    type=click.Choice(list(TITLES)),
    help="Measure only this case.",
)
@click.option("--quick", is_flag=True, help="Measure one round of one second. Takes four minutes.")
@click.option(
    "--output", type=Path, default=RESULTS, help="Directory for results.json, .md and .png."
)
def main(
    rounds: int, seconds: int, connections: int, names: tuple[str, ...], quick: bool, output: Path
) -> None:
    """Compare the speed of this service with MLServer, KServe, Triton, BentoML, and bare Flask and grpcio.

    Each server runs with one worker on one CPU core. wrk and h2load run on another core. The servers alternate, and
    only the measured one runs. Each measurement follows a check of a response and a warm-up of one second.
    """
    check_tools()
    rounds, seconds = (1, 1) if quick else (rounds, seconds)
    cpus = find_cpus()
    measured = f"{rounds} rounds of {seconds} s ({SLOW_TIMES} times that for slow servers), {connections} connections."
    click.echo("Starting each server separately, and then all of them")
    recipes = find_recipes(cpus[0])
    results = Results(f"{measured} Versions: {versions(recipes)}.")
    for server in start_alone(recipes, cpus[0]):
        results.add_start(server)
    with ExitStack() as stack:
        servers = start_all(stack, recipes, cpus[0])
        turns = [
            (OWN_CASES.get((name, case.name), case), name, server)
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
    output.mkdir(parents=True, exist_ok=True)
    results.write(output)
    click.echo(f"\n{results.table()}")
    sys.exit(results.failed)


def shown(turn: tuple[Case, str, Server] | None) -> str:
    return f"{turn[0].name} {turn[1]}" if turn else ""


def answers(case: Case, name: str, server: Server, results: Results) -> bool:
    """Return False if the server does not support the case. An incorrect response ends the run."""
    with server.awake() as running:
        try:
            case.check(*send_request(case, running))
        except RequestFailed as error:
            if not is_unsupported(case, name, error):
                raise click.ClickException(f"{case.name}: {name} failed: {error}") from error
            results.leave_out(case, name, str(error))
            return False
        except Exception as error:
            if name == "bare":
                return True
            raise click.ClickException(f"{case.name}: wrong response of {name}: {error}") from error
    return True


if __name__ == "__main__":
    main()
