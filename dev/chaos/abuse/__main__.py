"""The command line of the attacks: make abuse, or python -m dev.chaos.abuse --help"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import click

from dev.chaos.abuse import runner
from dev.chaos.abuse.attacks import ATTACKS, Attack
from dev.chaos.abuse.report import PAGE, RELIABILITY, RESULTS, short_table, table
from dev.chaos.report import Outcome, quote, row, write


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(list(ATTACKS)))
@click.option("--seconds", default=10.0, help="Duration of an attack that has no end.")
@click.option(
    "--output",
    type=Path,
    help="Directory for results.json and .md. [default: that of this package, if all attacks run]",
)
def main(names: tuple[str, ...], seconds: float, output: Path | None) -> None:
    """Attack a service, and check its memory, its probes and the delays of other clients.

    Run the attacks NAME, or all attacks by default. The exit status is 1 if the service exceeds a
    limit. A full run writes its results to dev/chaos/abuse/results and README.md, and to
    docs/reliability.md.
    """
    raise_file_limit()
    rows = []
    for name in names or ATTACKS:
        attack = ATTACKS[name]
        click.echo(f"{name}: {attack.title}")
        start = time.monotonic()
        outcome = attempt(attack, seconds)
        rows.append(row(name, attack.title, time.monotonic() - start, outcome))
        print_outcome(outcome)
    click.echo(table(rows))

    if output or not names:
        how = f"An attack without an end of its own takes {seconds:g} s."
        write(output or RESULTS, rows, how, make_table=table)
    if not (output or names):
        quote(rows, PAGE, make_table=table)
        quote(rows, RELIABILITY, make_table=short_table)
    sys.exit(any(row["faults"] for row in rows))


def raise_file_limit() -> None:
    """Raise the limit for open files, because an attacker has thousands of connections."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def attempt(attack: Attack, seconds: float) -> Outcome:
    """Run an attack and return the outcome. If it raises an exception, it fails."""
    try:
        return runner.run(attack, seconds)
    except (AssertionError, OSError, ValueError) as error:
        return Outcome(faults=[f"{type(error).__name__}: {error}"])


def print_outcome(outcome: Outcome) -> None:
    for protocol, tally in outcome.tallies.items():
        click.echo(
            f"  {protocol}: {tally.succeeded:,} of {tally.sent:,} succeeded {tally.lost or ''}; "
            f"p50 {tally.p50 * 1000:.1f} ms, p99 {tally.p99 * 1000:.1f} ms"
        )
    for name, value in outcome.figures.items():
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        click.echo(f"  {name}: {text}")
    verdict = "held"
    if outcome.faults:
        verdict = f"did NOT hold: {'; '.join(outcome.faults)}"
    click.echo(f"  {verdict}")


if __name__ == "__main__":
    main()
