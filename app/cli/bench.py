"""bench: a load run, live in the terminal, and its latencies as a histogram."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.common import FAILED, Failure, show_json, show_table
from app.cli.options import json_option, service_options
from app.cli.service import Service
from app.errors import InferenceError
from app.machine import usable_cores

if TYPE_CHECKING:
    from app.cli.load import Outcome, Plan
    from app.types import InferenceRequest

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
FULL = 0.9  # of a processor, which is all that a process of Python has


@click.command(
    "bench",
    short_help="Measure how many requests a second the service takes, and how long each.",
    epilog="""\b
Examples:
  PROGRAM bench                                        ten seconds, 8 connections, a request that METADATA makes
  PROGRAM bench --input request.json --seconds 30 --png latencies.png
  PROGRAM bench --rate 500 --concurrency 32            500 requests a second, however slow the answers
  PROGRAM bench --grpc 127.0.0.1:8081 --rows 100
  PROGRAM bench --json | jq .latency_ms.p99
""",
)
@click.option("--seconds", type=click.FloatRange(0.1), default=10, show_default=True, help="How long it measures.")
@click.option("--warm-up", type=click.FloatRange(0), default=1, show_default=True, help="Seconds before, not counted.")
@click.option("--concurrency", type=click.IntRange(1, 4096), default=8, show_default=True, help="Connections.")
@click.option("--processes", type=click.IntRange(1, 256), help="That send: half of the cores, unless given.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Requests a second; as many as can be, if not given."
)
@click.option(
    "--input", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A request, as REST's JSON."
)
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="Of the request, without --input.")
@click.option("--binary", is_flag=True, help="Send binary tensors over REST, and not JSON.")
@click.option("--timeout", type=click.FloatRange(0.001), default=60, show_default=True, help="Seconds for an answer.")
@click.option("--png", type=click.Path(dir_okay=False), help="Write the histogram there, too; needs matplotlib.")
@service_options()
@json_option
def command(service: Service, as_json: bool, png: str | None, **options: Any) -> None:
    """Sends the same request over and over, and says how many were answered a second and how long they took.

    Without --rate each connection waits for its answer before it asks again. With it requests have a time to begin, and
    what they take is counted from then, even where no connection was free.

    This client is Python, and may be slower than the service: it says where it was. Exit status 1: a request failed.
    """
    from app.cli.histogram import draw, plot
    from app.cli.load import run

    if png:
        check_png(png)
    plan = make_plan(service, **options)
    line = Live(plan)
    try:
        outcome = run(plan, line.show)
    except Failure as failure:
        if options["path"] or failure.exit_code != FAILED:
            raise
        raise Failure(f"{failure.message}; the request was made up: --input FILE sends one of yours") from None
    finally:
        line.clear()
    found = summary(plan, outcome)
    if as_json:
        show_json(found)
    else:
        show(found)
        click.echo("\n".join(["", *draw(outcome.histogram)]))
    if is_limit(outcome):
        more = plan.processes + 1
        click.echo(f"the client was the limit: its processor was full; --processes {more} may show more", err=True)
    if png:
        plot(outcome.histogram, f"{found['rate']:,.0f} requests a second, {plan.concurrency} connections", png)
    sys.exit(FAILED if outcome.errors or not outcome.histogram.count else 0)


def check_png(path: str) -> None:
    """Raises what would be told after the run only."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Failure("--png needs matplotlib: pip install matplotlib") from None
    kinds = Figure().canvas.get_supported_filetypes()
    if (suffix := Path(path).suffix) and suffix[1:].lower() not in kinds:
        raise click.UsageError(f"--png {path}: unknown ending; {', '.join(sorted(kinds))}")
    if not Path(path).parent.is_dir() or not os.access(Path(path).parent, os.W_OK):
        raise Failure(f"--png {path}: its folder is not there, or cannot be written")


def make_plan(service: Service, **options: Any) -> Plan:
    from app.cli.load import Plan
    from app.cli.model import read_model
    from app.cli.service import Service as Known

    model = read_model(service)
    # processes are sent it, and none has to ask for the model's name again
    known: Known = replace(service, model=model.name)
    try:
        request = read_file(options["path"]) if options["path"] else made_up(model, options["rows"])
        path, body, headers = prepared(known, request, options["binary"])
    except InferenceError as error:
        raise Failure(f"no request can be made: {error}; --input FILE has one") from None
    concurrency = options["concurrency"]
    processes = min(options["processes"] or max(1, usable_cores() // 2), concurrency)
    timing = {name: options[name] for name in ("seconds", "warm_up", "timeout", "rate")}
    return Plan(known, path, body, headers, concurrency, processes, **timing)


def read_file(path: Path) -> InferenceRequest:
    """The request in a file of REST's JSON."""
    from app.schemas import read_request

    try:
        return read_request(path.read_bytes())
    except InferenceError as error:
        raise Failure(f'{path}: expected a request, such as {{"inputs": [...]}}: {error}') from None


def made_up(model: Any, rows: int) -> InferenceRequest:
    """One that METADATA makes likely, with so many rows where that is free."""
    import numpy as np

    from app.envelope import write_json
    from app.example import example
    from app.schemas import read_request
    from app.types import ModelMetadata, RequestInput

    metadata = ModelMetadata(model.name, model.version, "", model.inputs, model.outputs)
    request = read_request(write_json(example(metadata, model.optional)))
    free = {each.name for each in model.inputs if each.shape and each.shape[0] == -1}
    request.inputs = [
        RequestInput(each.name, each.datatype, data=np.repeat(each.data, rows, axis=0)) if each.name in free else each
        for each in request.inputs
    ]
    return request


def prepared(service: Service, request: InferenceRequest, is_binary: bool) -> tuple[str, bytes, dict[str, str]]:
    """The path, body and headers of the request, over the protocol of the service."""
    if not service.grpc:
        body, headers = request.to_http(is_binary)
        return f"{service.prefix}{service.model_path()}/infer", body, headers
    from grpc_service import converters, messages

    message = converters.write_request(replace(request, model_name=service.model))
    return f"/{messages.SERVICE_NAME}/ModelInfer", message, {}


class Live:
    """The line that is shown while it runs."""

    def __init__(self, plan: Plan):
        from app.cli.progress import Line

        self.plan, self.line = plan, Line()

    def show(self, outcome: Outcome, seconds: float) -> None:
        from app.cli.histogram import shown
        from app.cli.progress import bar

        if not self.line.is_due() or seconds <= 0:
            return
        histogram = outcome.histogram
        p50, p99 = (shown(histogram.percentile(percent)) for percent in (50, 99))
        rate = histogram.count / min(seconds, max(outcome.last, 1e-9)) if histogram.count else 0
        part = bar(min(seconds / self.plan.seconds, 1))
        self.line.show(f"{part}{rate:,.0f} req/s  p50 {p50}  p99 {p99}  {outcome.errors.total():,} errors")

    def clear(self) -> None:
        self.line.clear()


def summary(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """What was measured, for machines and for the table."""
    histogram = outcome.histogram
    seconds = max(plan.seconds, outcome.last)
    latency = {name: histogram.percentile(percent) for name, percent in PERCENTILES.items()}
    return {
        "protocol": "grpc" if plan.service.grpc else "rest",
        "concurrency": plan.concurrency,
        "processes": plan.processes,
        "rate_wanted": plan.rate,
        "request_bytes": len(plan.body),
        "seconds": round(seconds, 3),
        "requests": histogram.count,
        "errors": outcome.errors.total(),
        "error_kinds": dict(outcome.errors.most_common()),
        "rate": round(histogram.count / seconds, 1),
        "latency_ms": {name: round(value * 1e3, 4) for name, value in {"mean": histogram.mean, **latency}.items()},
        "client_busy": round(outcome.busy, 3),
        "client_was_the_limit": is_limit(outcome),
    }


def is_limit(outcome: Outcome) -> bool:
    return outcome.busy > FULL


def show(found: dict[str, Any]) -> None:
    from app.cli.histogram import shown

    rows = [
        ("requests", f"{found['requests']:,} in {found['seconds']:.1f} s"),
        ("rate", f"{found['rate']:,.0f} requests/s"),
        *((name, shown(value / 1e3)) for name, value in found["latency_ms"].items()),
        ("errors", f"{found['errors']:,}"),
        ("client", f"{found['client_busy']:.0%} of a processor in each of {found['processes']} processes"),
    ]
    show_table(rows)
    for text, count in found["error_kinds"].items():
        click.echo(f"  {count:,} times {text}", err=True)
