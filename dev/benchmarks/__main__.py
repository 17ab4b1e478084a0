"""Speed compared with MLServer, KServe, Triton, BentoML and bare servers: make bench, or python -m dev.benchmarks --help"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path

import click

from dev.benchmarks.cases import CASES, Case
from dev.benchmarks.load import WARM_UP_SECONDS, check_tools, find_cpus, measure
from dev.benchmarks.report import BARE, RESULTS, TITLES, Results
from dev.benchmarks.requests import RequestFailed, send_request
from dev.benchmarks.servers.bentoml.cases import CASES as BENTOML_CASES
from dev.benchmarks.servers.start import Server, find_recipes, start_all, start_alone, versions
from dev.benchmarks.support import is_unsupported

# Slower servers are measured longer. Otherwise, the requests at the edges of the measurement distort the rate.
SLOW_RATE = 60  # requests per second
SLOW_TIMES = 5
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
    "case_names",
    multiple=True,
    type=click.Choice(list(TITLES)),
    help="Measure only this case.",
)
@click.option("--quick", is_flag=True, help="Measure one round of one second. Takes four minutes.")
@click.option(
    "--output", type=Path, default=RESULTS, help="Directory for results.json, .md and .png."
)
def main(
    rounds: int,
    seconds: int,
    connections: int,
    case_names: tuple[str, ...],
    quick: bool,
    output: Path,
) -> None:
    """Compare the speed of this service with MLServer, KServe, Triton, BentoML, and bare Flask and grpcio.

    Each server runs with one worker on one CPU core. wrk and h2load run on another core. The servers alternate, and
    only the measured one runs. Each measurement follows a check of a response and a warm-up of one second.
    """
    check_tools()
    cpus = find_cpus()
    server_cpu = cpus[0]
    client_cpus = cpus[1:2]
    if quick:
        rounds = 1
        seconds = 1
    how = f"{rounds} rounds of {seconds} s ({SLOW_TIMES} times that for slow servers), {connections} connections."

    click.echo("Starting each server separately, and then all of them")
    recipes = find_recipes(server_cpu)
    results = Results(f"{how} Versions: {versions(recipes)}.")
    for server in start_alone(recipes, server_cpu):
        results.add_start(server)

    with ExitStack() as stack:
        servers = start_all(stack, recipes, server_cpu)
        turns = []
        for case, server in pair(case_names, servers):
            missing_support = find_missing_support(case, server)
            if missing_support:
                results.leave_out(case, server.name, missing_support)
            else:
                turns.append((case, server))

        with click.progressbar(turns * rounds, label="measuring", item_show_func=name_turn) as bar:
            for case, server in bar:
                with server.awake() as running:
                    warm_up = measure(case, running, WARM_UP_SECONDS, connections, client_cpus)
                    is_slow = warm_up.rate < SLOW_RATE
                    duration = seconds * SLOW_TIMES if is_slow else seconds
                    row = measure(case, running, duration, connections, client_cpus)
                results.add(case, server.name, row)

    output.mkdir(parents=True, exist_ok=True)
    results.write(output)
    click.echo(f"\n{results.table()}")
    sys.exit(results.failed)


def pair(
    case_names: Sequence[str], servers: dict[tuple[str, str, str], Server]
) -> Iterator[tuple[Case, Server]]:
    """Yield each case, or those in `case_names`, with each server of its transport and model."""
    for case in CASES:
        if case_names and case.name not in case_names:
            continue
        for (server_name, transport, model), server in servers.items():
            if (transport, model) == (case.transport, case.model):
                yield OWN_CASES.get((server_name, case.name), case), server


def name_turn(turn: tuple[Case, Server] | None) -> str:
    """Return the text that the progress bar shows. There is no turn at its end."""
    if turn is None:
        return ""
    case, server = turn
    return f"{case.name} {server.name}"


def find_missing_support(case: Case, server: Server) -> str | None:
    """Return the server's error if it does not support the case. Any other failure ends the run."""
    with server.awake() as running:
        try:
            body, headers = send_request(case, running)
        except RequestFailed as error:
            if is_unsupported(case, server.name, error):
                return str(error)
            raise click.ClickException(f"{case.name}: {server.name} failed: {error}") from error
        except (OSError, HTTPException) as error:  # no response, such as after a crash
            raise click.ClickException(f"{case.name}: {server.name} failed: {error}") from error

    # The bare servers return constants, or the bytes of the request.
    if server.name == BARE:
        return None
    try:
        case.check(body, headers)
    except Exception as error:
        raise click.ClickException(
            f"{case.name}: Wrong response of {server.name}: {error}"
        ) from error
    return None


if __name__ == "__main__":
    main()
