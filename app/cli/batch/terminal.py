"""The packages that the batch tools need, and their progress bar."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.cli.common import BROKEN, Failure

if TYPE_CHECKING:
    from rich.progress import Progress


def require_packages(*names: str, extra: str = "batch") -> None:
    """Raise Failure if one of the packages is not installed."""
    if missing := [name for name in names if not find_spec(name)]:
        raise Failure(f"Package {missing[0]} is not installed. Run: pip install --editable '.[{extra}]'", BROKEN)


def progress_bar() -> Progress:
    """Return a progress bar on standard error. It prints nothing if that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
