"""What commands share: how they fail, and how they show what they found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

# Exit statuses; 2, wrong usage, is click's. 1, 3 and 4 mean what they mean where the service itself ends with them.
FAILED, NOT_READY, BROKEN, INTERRUPTED = 1, 3, 4, 130


class Failure(click.ClickException):
    """Ends the command with one line on stderr, and the exit status."""

    def __init__(self, text: str, status: int = FAILED):
        super().__init__(one_line(text))
        self.exit_code = status  # type: ignore[misc]


def one_line(text: str) -> str:
    """The text without line ends, and with what moves a terminal's cursor escaped."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in " ".join(text.split()))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def show_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_table(rows: Sequence[Sequence[Any]], header: Sequence[str] = ()) -> None:
    """Prints columns as wide as what is in them; `header` in bold, where that is to be seen."""
    table = [[str(cell) for cell in row] for row in ([header] if header else []) + [*rows]]
    widths = [max(map(len, map(click.unstyle, column))) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        cells = [cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        click.echo(click.style(line, bold=True) if header and not number else line)
