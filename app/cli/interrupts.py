"""SIGINT and SIGTERM as KeyboardInterrupt, even where a library takes that for an error of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
came = threading.Event()


@contextmanager
def raised() -> Iterator[None]:
    """Raises KeyboardInterrupt at the signals, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came.clear()
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(*_: Any) -> None:
    came.set()
    raise KeyboardInterrupt


def check() -> None:
    """Raises KeyboardInterrupt where a signal came, whatever became of that exception."""
    if came.is_set():
        raise KeyboardInterrupt
