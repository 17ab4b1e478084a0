"""One line on the terminal that says how far a command is; nothing where nobody looks."""

from __future__ import annotations

import sys
import time

SECONDS_A_LINE = 0.1
BAR = 20


class Line:
    """A line of stderr that is written over."""

    def __init__(self) -> None:
        self.shown = 0.0
        self.is_seen = sys.stderr.isatty()

    def is_due(self) -> bool:
        return self.is_seen and time.monotonic() > self.shown + SECONDS_A_LINE

    def show(self, text: str) -> None:
        if self.is_seen:
            self.shown = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.shown:
            self.show("")


def bar(part: float | None) -> str:
    if part is None:
        return ""
    done = int(part * BAR)
    return f"[{'#' * done}{'.' * (BAR - done)}] {part:4.0%}  "


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
