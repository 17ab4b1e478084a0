"""The packages that the batch tools need, and their progress bar."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from app.cli.common import BROKEN, Failure


def require_packages(*names: str, extra: str = "batch") -> None:
    """Raise Failure if one of the packages is not installed."""
    if missing := [name for name in names if not find_spec(name)]:
        raise Failure(f"Package {missing[0]} is not installed. Run: pip install --editable '.[{extra}]'", BROKEN)


def progress_bar() -> Any:
    """Return a progress bar on standard error. It prints nothing if that is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
