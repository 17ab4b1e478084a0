"""Comparison of this checkout with another one in alternating runs: python -m dev.benchmarks.versus OTHER_DIRECTORY

Use it to measure the effect of a change: run `git worktree add ../before HEAD~1`, install the
dependencies there, and compare. Each ratio compares two runs of the same round, so it does not
depend on changes in the speed of the machine.

The models and the requests are those of this checkout, for both services. An older checkout may not
have them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import trustme

from dev.benchmarks.cases import CASES, S1_TLS, Case
from dev.benchmarks.load import Row, check_tools, find_cpus, measure
from dev.benchmarks.report import markdown
from dev.benchmarks.requests import RequestFailed, send_request
from dev.benchmarks.servers.start import ROOT
from tests.kit.processes import Running, free_ports, started

THIS = "this"
OTHER = "other"
ALL = {case.name: case for case in (*CASES, S1_TLS)}


@click.command(context_settings={"show_default": True})
@click.argument(
    "other", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)
)
@click.option(
    "--python", type=Path, help="Python of the other checkout. [default: its .venv/bin/python]"
)
@click.option(
    "--rounds", default=9, help="Number of rounds. Each measures every case on both checkouts."
)
@click.option("--seconds", default=2, help="Duration of one measurement in seconds.")
@click.option(
    "--connections", default=8, help="Number of connections that always wait for a response."
)
@click.option(
    "--case",
    "case_names",
    multiple=True,
    type=click.Choice(list(ALL)),
    help="Measure only this case.",
)
def main(
    other: Path,
    python: Path | None,
    rounds: int,
    seconds: int,
    connections: int,
    case_names: tuple[str, ...],
) -> None:
    """Compare rate, latency and CPU time per request with the checkout in OTHER."""
    check_tools()
    cases = [ALL[name] for name in case_names or ALL]
    server_cpu, client_cpu = find_cpus()[:2]
    pythons = {
        THIS: Path(sys.executable),
        OTHER: (python or other / ".venv/bin/python").absolute(),
    }
    folders = {THIS: ROOT, OTHER: other}
    # Cases with the same model share a service, but TLS needs one of its own. Any of the cases can start it.
    examples = {(case.model, case.is_secure): case for case in cases}
    ratios: dict[str, list[Ratios]] = {case.name: [] for case in cases}

    with ExitStack() as stack:
        services: dict[tuple[str, str, bool], Running] = {}
        for side in (THIS, OTHER):
            for (model, is_secure), case in examples.items():
                service = serve(folders[side], pythons[side], case, server_cpu)
                services[side, model, is_secure] = stack.enter_context(service)

        for number in range(rounds):
            # The order alternates, so that neither side always runs first.
            sides = (THIS, OTHER) if number % 2 else (OTHER, THIS)
            for case in cases:
                rows: dict[str, Row] = {}
                for side in sides:
                    running = services[side, case.model, case.is_secure]
                    rows[side] = drive(case, running, seconds, connections, client_cpu)
                print_rows(case, rows[THIS], rows[OTHER])
                ratios[case.name].append(Ratios.between(rows[THIS], rows[OTHER]))

    print_medians(ratios)


class Ratios(NamedTuple):
    """Figures of this checkout divided by those of the other one."""

    rate: float
    p99: float
    cpu: float

    @classmethod
    def between(cls, this: Row, other: Row) -> Ratios:
        return cls(this.rate / other.rate, this.p99 / other.p99, this.cpu / other.cpu)


def print_rows(case: Case, this: Row, other: Row) -> None:
    rates = f"{this.rate:9.1f} {other.rate:9.1f} requests/s"
    latencies = f"p99 {this.p99:7.2f} {other.p99:7.2f} ms"
    cpu_times = f"{this.cpu:8.1f} {other.cpu:8.1f} µs CPU per request"
    click.echo(f"{case.name} {rates}, {latencies}, {cpu_times}")


def print_medians(ratios: dict[str, list[Ratios]]) -> None:
    """Print a Markdown table with the medians of all rounds by case."""
    lines = [["case", "rate", "p99", "CPU time per request"]]
    for name, rounds in ratios.items():
        medians = [median(values) for values in zip(*rounds, strict=True)]
        lines.append([name, *(f"{value:.3f}" for value in medians)])
    click.echo(f"\nMedians of this / other:\n\n{markdown(lines)}")


@contextmanager
def serve(folder: Path, python: Path, case: Case, cpu: int) -> Iterator[Running]:
    """Start the service of the checkout in `folder` on one core, with TLS if the case needs it.

    The model is that of this checkout.
    """
    http, grpc = free_ports(2)
    settings: dict[str, Any] = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "WORKERS": 1,
    }
    settings |= {"LOG_LEVEL": "WARNING", "SHUTDOWN_DELAY_SECONDS": 0, "PYTHONPATH": folder}
    pinned = ["taskset", "-c", str(cpu)]
    command = [
        *pinned,
        str(python),
        "-m",
        "gunicorn",
        f"dev.benchmarks.servers.ours:{case.model}()",
    ]
    with TemporaryDirectory() as temporary:
        # The first directory of sys.path has only the package `dev`. All other packages are those of the checkout.
        (Path(temporary) / "dev").symlink_to(ROOT / "dev")
        settings["GUNICORN_CMD_ARGS"] = f"--pythonpath {temporary}"
        if case.is_secure:
            pem = Path(temporary) / "certificate.pem"
            trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
            settings |= {"TLS_CERT_FILE": pem, "TLS_KEY_FILE": pem}
        with started(command, folder, settings, partial(responds, case)) as running:
            yield running


def responds(case: Case, running: Running) -> bool:
    """Return True if the request succeeds. While the service starts, any error can occur."""
    try:
        send_request(case, running)
    except (OSError, HTTPException, RequestFailed):
        return False
    return True


def drive(case: Case, running: Running, seconds: int, connections: int, cpu: int) -> Row:
    """Check a response and measure. Raise an exception if a request fails, or if none is completed."""
    case.check(*send_request(case, running))
    row = measure(case, running, seconds, connections, [cpu])
    if not row.rate:
        raise click.ClickException(
            f"{case.name}: No request was completed in {seconds} s. Set --seconds to a higher value."
        )
    if row.failed:
        raise click.ClickException(f"{case.name}: {row.failed} requests failed")
    return row


if __name__ == "__main__":
    main()
