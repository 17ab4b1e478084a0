"""doctor: whether the service can run here, and what keeps it from running well."""

from __future__ import annotations

import click

from app.cli import findings, limits
from app.cli.common import FAILED, Failure, show_json, show_table
from app.cli.findings import ERROR, OK, WARNING, Finding
from app.cli.options import json_option

COLOURS = {OK: "green", WARNING: "yellow", ERROR: "red"}


@click.command(
    epilog="""\b
    Examples:
      PROGRAM doctor
      WORKERS=8 PROGRAM doctor --json"""
)
@json_option
def command(as_json: bool) -> None:
    """Look for what keeps the service from running here.

    It looks at packages, settings, cores, memory, limits and ports. Each line is ok, a warning or an error, and says
    what to do. The exit status is 1 where there is an error.
    """
    found = look()
    if as_json:
        show_json([each._asdict() for each in found])
    else:
        show(found)
    if errors := [each.what for each in found if each.state == ERROR]:
        raise Failure(f"the service cannot run here: {', '.join(errors)}", FAILED)


def look() -> list[Finding]:
    settings, told = findings.settings()
    found = [*findings.python(), *findings.packages(), *findings.files(), *told, *limits.cores(), *limits.open_files()]
    found += limits.allocator()
    if settings:
        found += [*limits.memory(settings), *limits.shared_memory(settings)]
        found += [*findings.threads(settings), *limits.ports(settings)]
    return found


def show(found: list[Finding]) -> None:
    rows = [
        (click.style(each.state, fg=COLOURS[each.state]), each.what, f"{each.text}; {each.advice}".removesuffix("; "))
        for each in found
    ]
    show_table(rows)
