"""Exit statuses, errors and output of all commands."""

import json
from collections.abc import Sequence
from typing import Any

import click

# Exit statuses. click uses 2 for invalid usage. 1, 3 and 4 have the same meaning as for the
# service.
FAILED = 1
NOT_READY = 3
BROKEN = 4
INTERRUPTED = 130


class Failure(click.ClickException):
    """An error that ends the command with one line on standard error and an exit status."""

    def __init__(self, text: str, status: int = FAILED):
        super().__init__(one_line(text))
        self.exit_code = status  # type: ignore[misc]


def one_line(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    characters = []
    for character in " ".join(text.split()):
        if character.isprintable():
            characters.append(character)
        else:
            escaped = repr(character).strip("'")
            characters.append(escaped)
    return "".join(characters)


def show_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_table(rows: Sequence[Sequence[object]], header: Sequence[str] | None = None) -> None:
    """Print rows with aligned columns, below a bold header if there is one."""
    if header is None:
        lines = _align_columns(rows)
    else:
        bold_line, *lines = _align_columns([header, *rows])
        click.secho(bold_line, bold=True)
    for line in lines:
        click.echo(line)


def _align_columns(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return one line per row. All rows have the same number of cells."""
    table = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]

    lines = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
