"""The bench command: send one request repeatedly and measure request rate and latencies."""

import sys
from importlib.util import find_spec
from typing import Any

import click

from app.cli.client import ServiceClient
from app.cli.common import BROKEN, FAILED, Failure, show_json, show_table
from app.cli.options import PATH, json_option, service_options, transport_option


@click.command(
    "bench",
    epilog="\b\nExamples:\n"
    "  PROGRAM bench                                        "
    "10 seconds, 8 concurrent requests, made from METADATA\n"
    "  PROGRAM bench --input request.json --seconds 30 --plot latencies.png\n"
    "  PROGRAM bench --rate 500 --concurrency 32            "
    "500 requests per second, however slow the responses\n"
    "  PROGRAM bench --transport grpc --url grpc://127.0.0.1:8081\n"
    "  PROGRAM bench --json | jq .latency_ms.p99\n",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=10,
    show_default=True,
    help="Seconds to measure.",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(0),
    default=1,
    show_default=True,
    help="Seconds before measuring.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    default=8,
    show_default=True,
    help="Concurrent requests.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    help="Client processes.  [default: half of the CPU cores]",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Requests per second.  [default: unlimited]",
)
@click.option(
    "--input", "path", type=PATH, help="File with a JSON request.  [default: made from METADATA]"
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.001),
    default=60,
    show_default=True,
    help="Seconds per request.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    help="Image file for a latency histogram. Needs matplotlib.",
)
@transport_option("rest-json")
@service_options
@json_option
def command(service: ServiceClient, as_json: bool, plot: str | None, **options: Any) -> None:
    """Send the same request repeatedly, and measure request rate and latencies of the service.

    Without --rate, each connection sends the next request after the response to the previous one.
    With --rate, each request has a scheduled time. Its latency is measured from that time, even if
    no connection was free.

    The command warns if this client was the bottleneck, not the service. The exit status is 1 if a
    request failed.
    """
    if plot and not find_spec("matplotlib"):
        raise Failure(
            f"--plot needs matplotlib. Run {sys.executable} -m pip install matplotlib", BROKEN
        )
    from app.cli.batch import load

    plan = load.make_plan(service, **options)
    outcome = load.run(plan)
    report = {"transport": service.transport, **load.summary(plan, outcome)}
    if as_json:
        show_json(report)
    else:
        _show_report(report)
    if report["client_was_the_limit"]:
        click.echo(f"The client was the limit. Try --processes {plan.processes + 1}.", err=True)
    if plot:
        load.plot(outcome, plot)
    if outcome.errors or not outcome.latencies:
        sys.exit(FAILED)


def _show_report(report: dict[str, Any]) -> None:
    """Print the object for --json as a table, and the errors on standard error."""
    count = f"{report['requests']:,} in {report['seconds']:.1f} s"
    rate = f"{report['rate']:,.0f} per second"
    rows = [("requests", f"{count}, {rate}")]
    for name, milliseconds in report["latency_ms"].items():
        rows.append((name, f"{milliseconds:.3g} ms"))
    rows.append(("errors", f"{report['errors']:,}"))
    show_table(rows)
    for text, count in report["error_kinds"].items():
        click.echo(f"{count:,} times {text}", err=True)
