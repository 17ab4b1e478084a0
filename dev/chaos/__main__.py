"""The command line of the chaos tests: make chaos, or python -m dev.chaos --help"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from dev.chaos.report import RESULTS, Outcome, quote, row, table, write
from dev.chaos.scenarios import SCENARIOS, Options, Scenario


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(list(SCENARIOS)))
@click.option("--seconds", default=10.0, help="Duration of the load in seconds.")
@click.option("--restarts", default=100, help="Number of workers to replace in `restarts`.")
@click.option(
    "--output",
    type=Path,
    help="Directory for results.json and .md. [default: dev/chaos/results, if all scenarios run]",
)
def main(names: tuple[str, ...], seconds: float, restarts: int, output: Path | None) -> None:
    """Run scenarios that inject faults into a service under load over both protocols.

    Run the scenarios NAME, or all scenarios by default. The exit status is 1 if a scenario fails. A
    full run writes its results to dev/chaos/results and dev/chaos/README.md.
    """
    rows = []
    for name in names or SCENARIOS:
        each = SCENARIOS[name]
        click.echo(f"{name}: {each.title}")
        begun = time.monotonic()
        outcome = attempt(each, Options(seconds, restarts))
        rows.append(row(name, each.title, time.monotonic() - begun, outcome))
        print_outcome(outcome)
    click.echo(table(rows))
    if output or not names:
        write(output or RESULTS, rows, f"Each load takes {seconds:g} s.")
    if not (output or names):
        quote(rows)
    sys.exit(any(row["faults"] for row in rows))


def attempt(scenario: Scenario, options: Options) -> Outcome:
    """Run a scenario and return the outcome. If the scenario raises an exception, it fails."""
    try:
        return scenario.run(options)
    except (AssertionError, OSError) as error:
        return Outcome(faults=[str(error)])


def print_outcome(outcome: Outcome) -> None:
    for protocol, tally in outcome.tallies.items():
        click.echo(
            f"  {protocol}: {tally.sent:,} sent, {tally.succeeded:,} succeeded, {tally.rejected:,} rejected, "
            f"{tally.timed_out:,} timed out, {tally.losses:,} lost {tally.lost or ''}; "
            f"p50 {tally.p50 * 1000:.1f} ms, p99 {tally.p99 * 1000:.1f} ms"
        )
    for name, value in outcome.figures.items():
        click.echo(f"  {name}: {value}")
    click.echo(f"  did NOT hold: {'; '.join(outcome.faults)}" if outcome.faults else "  held")


if __name__ == "__main__":
    main()
