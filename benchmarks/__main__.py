"""Speed beside MLServer, KServe and the bare limits, case by case: make bench, or python -m benchmarks --help"""

from __future__ import annotations

import http.client
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import click
import grpc

from benchmarks.cases import CASES, Case
from benchmarks.load import check_tools, measure
from benchmarks.report import Results
from benchmarks.servers.start import Server, start_all

HERE = Path(__file__).parent
WARM_UP_SECONDS = 1
# A server that answers so few requests a second is measured longer, or the window's edges would count against it.
SLOW_RATE, SLOW_TIMES = 60, 5


@click.command(context_settings={"show_default": True})
@click.option("--rounds", default=5, help="How often each case is measured on each server, all of them in turn.")
@click.option("--seconds", default=6, help="How long a measurement takes.")
@click.option("--connections", default=8, help="Connections that always wait for an answer.")
@click.option("--case", "names", multiple=True, metavar="NAME", help="Only this case, such as S1.")
@click.option("--quick", is_flag=True, help="Two rounds of a second: three minutes in all.")
@click.option("--output", type=Path, default=HERE / "results", help="The folder for results.json, .md and .png.")
def main(rounds: int, seconds: int, connections: int, names: tuple[str, ...], quick: bool, output: Path) -> None:
    """Measures this service beside MLServer, KServe, and what Flask and grpcio do bare.

    Each server runs on one processor, with one worker, and wrk and h2load on another. The servers take turns, and only
    the one that is measured runs. The answers are checked first; a measurement comes after a second of the same.
    """
    check_tools()
    rounds, seconds = (2, 1) if quick else (rounds, seconds)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise click.ClickException("two processors are needed: one for the servers, one for what drives them")
    results = Results()
    with ExitStack() as stack:
        click.echo("starting every server")
        servers = start_all(stack, cpus[0])
        results.add_starts(servers.values())
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
                    warm = measure(case, running.http, running.grpc, WARM_UP_SECONDS, connections, cpus[1:2])
                    long = seconds * (SLOW_TIMES if warm.rate < SLOW_RATE else 1)
                    row = measure(case, running.http, running.grpc, long, connections, cpus[1:2])
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
            case.check(*(ask_http(case, running.http) if case.transport == "http" else ask_grpc(case, running.grpc)))
        except Unsupported as error:
            results.leave_out(case, name, str(error))
            return False
        except Exception as error:
            if name == "bare":
                return True
            raise click.ClickException(f"{case.name}: {name} answers wrongly: {error}") from error
    return True


class Unsupported(Exception):
    """A case that a server refuses."""


def ask_http(case: Case, address: str) -> tuple[bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("POST", case.path, case.body, case.headers)
    response = connection.getresponse()
    body, given = response.read(), dict(response.getheaders())
    connection.close()
    if response.status != 200:
        raise Unsupported(f"{response.status} {body[:200]!r}")
    return body, {name.title(): value for name, value in given.items()}


def ask_grpc(case: Case, address: str) -> tuple[bytes, dict[str, str]]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options) as channel:
        try:
            return channel.unary_unary(case.path)(case.body, timeout=30), {}
        except grpc.RpcError as error:
            raise Unsupported(f"{error.code()} {error.details()}") from None


if __name__ == "__main__":
    main()
