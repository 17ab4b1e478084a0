"""Entry point: python -m tests.fuzz --requests 200000"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Generator
from pathlib import Path

import click

from tests.fuzz.campaign import play
from tests.fuzz.judge import LIMIT, log_faults
from tests.fuzz.openapi import COMMAND, run_schemathesis
from tests.fuzz.report import Report
from tests.fuzz.rounds import Result
from tests.fuzz.watch import Watch
from tests.kit.processes import Running, gunicorn

ROOT = Path(__file__).parents[2]
APP = "tests.conformance_model:create_service()"
FAULTS_AT_MOST = 10


@click.command(context_settings={"show_default": True})
@click.option(
    "--requests", type=click.IntRange(1), default=200_000, help="Total number of requests."
)
@click.option(
    "--workers", type=click.IntRange(1), default=2, help="Worker processes of the service."
)
@click.option(
    "--clients",
    type=click.IntRange(1),
    default=4,
    help="Processes that generate and send requests.",
)
@click.option("--seed", type=int, help="Seed of hypothesis. [default: a random one]")
@click.option(
    "--schemathesis/--no-schemathesis",
    "openapi",
    default=True,
    help="Also send requests of schemathesis.",
)
def main(requests: int, workers: int, clients: int, seed: int | None, openapi: bool) -> None:
    """Start the service with the model of oip_conformance/model.py, and send generated requests to it.

    The exit status is 0 if no fault was found. It is 1 if a response was invalid, missing or later
    than 5 s, or if a worker exited, leaked memory, or logged an error.
    """
    if openapi and not COMMAND.exists():
        raise click.UsageError(
            "schemathesis is not installed: pip install schemathesis, or --no-schemathesis"
        )
    seed = random.randrange(2**32) if seed is None else seed
    click.echo(f"seed {seed}")
    report = Report()
    try:
        with gunicorn(ROOT, APP, WORKERS=workers, MAX_REQUEST_BYTES=LIMIT) as running:
            watch = Watch(running.process.pid, workers)
            drive(report, watch, requests, run_all(running, requests, clients, seed, openapi))
            report.faults += log_faults(running.log())
    except AssertionError as error:  # the service did not start or did not shut down correctly
        report.faults.append(str(error)[-3000:])
    for fault in report.faults:
        click.echo(f"\n{fault}")
    click.echo(f"\n{report.table()}")
    sys.exit(bool(report.faults))


def drive(
    report: Report, watch: Watch, requests: int, results: Generator[Result, None, None]
) -> None:
    """Collect results, and samples of the workers, until there are too many faults."""
    begun = time.monotonic()
    with click.progressbar(length=requests, label="requests") as bar:
        for result in results:
            report.add(result)
            watch.sample(report.requests)
            bar.update(result.requests)
            if len(report.faults) >= FAULTS_AT_MOST:
                break
    results.close()
    report.seconds, report.watched = time.monotonic() - begun, watch.lines()
    report.faults += watch.faults()


def run_all(
    running: Running, requests: int, clients: int, seed: int, openapi: bool
) -> Generator[Result, None, None]:
    """Yield the results of schemathesis, and then of rounds with the remaining requests."""
    if openapi:
        first = run_schemathesis(running.http_address, examples=max(1, requests // 1500), seed=seed)
        requests = max(0, requests - first.requests)
        yield first
    yield from play(requests, clients, seed, running.http_port, running.grpc_port)


if __name__ == "__main__":
    main()
