"""Exit statuses, errors and output of all commands."""

import json
from collections.abc import Sequence
from typing import Any

import click

# Exit statuses. click uses 2 for invalid usage. 1, 3 and 4 have the same meaning as for the service.
FAILED, NOT_READY, BROKEN, INTERRUPTED = 1, 3, 4, 130


class Failure(click.ClickException):
    """An error that ends the command with one line on standard error and an exit status."""

    def __init__(self, text: str, status: int = FAILED):
        super().__init__(one_line(text))
        self.exit_code = status  # type: ignore[misc]


def one_line(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    return "".join(
        each if each.isprintable() else repr(each)[1:-1] for each in " ".join(text.split())
    )


def show_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_table(rows: Sequence[Sequence[Any]], header: Sequence[str] = ()) -> None:
    """Print a table with aligned columns and a bold header."""
    table = [[str(cell) for cell in row] for row in ([header] if header else []) + [*rows]]
    widths = [max(map(len, map(click.unstyle, column))) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        cells = [
            cell + " " * (width - len(click.unstyle(cell)))
            for cell, width in zip(row, widths, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        click.echo(click.style(line, bold=True) if header and not number else line)
