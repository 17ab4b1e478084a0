"""bench: send one request over and over, and measure rate and latencies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.batch.terminal import require_packages
from app.cli.common import FAILED, NOT_READY, Failure, show_json, show_table
from app.cli.options import json_option, service_options
from app.cli.service import Service
from app.errors import InferenceError
from app.machine import usable_cores

if TYPE_CHECKING:
    from app.cli.batch.load import Outcome, Plan

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
FULL = 0.9  # of a CPU core, which is all that a Python process uses
REQUEST_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    "bench",
    short_help="Measure request rate and latencies of the service.",
    epilog="""\b
Examples:
  PROGRAM bench                                        10 seconds, 8 connections, a request made from METADATA
  PROGRAM bench --input request.json --seconds 30 --png latencies.png
  PROGRAM bench --rate 500 --concurrency 32            500 requests per second, however slow the responses
  PROGRAM bench --grpc 127.0.0.1:8081
  PROGRAM bench --json | jq .latency_ms.p99
""",
)
@click.option("--seconds", type=click.FloatRange(0.1), default=10, show_default=True, help="Duration.")
@click.option("--warm-up", type=click.FloatRange(0), default=1, show_default=True, help="Seconds before, not counted.")
@click.option("--concurrency", type=click.IntRange(1, 4096), default=8, show_default=True, help="Connections.")
@click.option("--processes", type=click.IntRange(1, 256), help="Client processes. [default: half of the CPU cores]")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests per second. [default: unlimited]")
@click.option("--input", "path", type=REQUEST_FILE, help="Request as JSON of REST. [default: made from METADATA]")
@click.option("--form", type=click.Choice(["json", "binary"]), default="json", help="Form of tensors over REST.")
@click.option("--timeout", type=click.FloatRange(0.001), default=60, show_default=True, help="Seconds per request.")
@click.option("--png", type=click.Path(dir_okay=False), help="Image of the latencies. Needs matplotlib.")
@service_options()
@json_option
def command(service: Service, as_json: bool, png: str | None, **options: Any) -> None:
    """Send the same request over and over, and print the request rate and the latencies.

    Without --rate, each connection waits for its response before it sends again. With --rate, each request has a
    planned time, and its latency is measured from then, even if no connection was free.

    The command warns if this client, and not the service, was the limit. Exit status 1: a request failed.
    """
    require_packages("rich")
    if png:
        require_packages("matplotlib", extra="plots")
    from app.cli.batch import load

    plan = make_plan(service, **options)
    outcome = load.run(plan)
    found = summary(plan, outcome)
    if as_json:
        show_json(found)
    else:
        requests = f"{found['requests']:,} in {found['seconds']:.1f} s, {found['rate']:,.0f} per second"
        times = [(name, f"{value:.3g} ms") for name, value in found["latency_ms"].items()]
        show_table([("requests", requests), *times, ("errors", f"{found['errors']:,}")])
        for text, count in found["error_kinds"].items():
            click.echo(f"{count:,} times {text}", err=True)
    if found["client_was_the_limit"]:
        click.echo(f"The client was the limit. Try --processes {plan.processes + 1}.", err=True)
    if png:
        plot(outcome, png)
    sys.exit(FAILED if outcome.errors or not outcome.latencies else 0)


def make_plan(service: Service, **options: Any) -> Plan:
    """Return what is sent, and how. Raise Failure if the service does not respond to the request."""
    from app.cli.batch.load import Plan
    from app.cli.batch.transports import Retryable, connect, read_model
    from app.envelope import write_json
    from app.example import example
    from app.schemas import read_request
    from app.types import ModelMetadata

    model = read_model(service)
    metadata = ModelMetadata(model.name, "", "", model.inputs, model.outputs)
    path, processes = options.pop("path"), options.pop("processes")
    connection = connect(service, model, options["timeout"], options["form"])
    try:
        request = read_request(path.read_bytes() if path else write_json(example(metadata, model.optional)))
        body, headers = connection.encode(request)
        connection.send(body, headers)
    except InferenceError as error:
        raise Failure(f"The first request failed: {error}. Use --input FILE to send another request.") from None
    except Retryable as error:
        raise Failure(f"The first request failed: {error}", NOT_READY) from None
    finally:
        connection.close()
    processes = min(processes or max(1, usable_cores() // 2), options["concurrency"])
    return Plan(service=service, model=model, processes=processes, body=body, headers=headers, **options)


def summary(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """Return the measurements as JSON."""
    import numpy as np

    times = np.array(outcome.latencies or [0.0]) * 1e3
    seconds = max(plan.seconds, outcome.last)
    percentiles = {name: round(np.percentile(times, percent), 4) for name, percent in PERCENTILES.items()}
    return {
        "protocol": "grpc" if plan.service.grpc else "rest",
        "processes": plan.processes,
        "seconds": round(seconds, 3),
        "requests": len(outcome.latencies),
        "rate": round(len(outcome.latencies) / seconds, 1),
        "latency_ms": {"mean": round(times.mean(), 4), **percentiles},
        "errors": outcome.errors.total(),
        "error_kinds": dict(outcome.errors.most_common(20)),
        "client_busy": round(outcome.busy, 3),
        "client_was_the_limit": outcome.busy > FULL,
    }


def plot(outcome: Outcome, path: str) -> None:
    """Write a histogram of the latencies as an image."""
    import numpy as np
    from matplotlib.figure import Figure

    times = np.array(outcome.latencies) * 1e3
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.hist(times, np.geomspace(times.min(), times.max() * 1.01, 64).tolist())
    axes.set(xscale="log", xlabel="ms", ylabel="requests", title=f"p99: {np.percentile(times, 99):.3g} ms")
    figure.savefig(path, dpi=150)
