"""Restarts of the server under test, and time limits of cases."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oip_conformance.target import Target

RESTART_SECONDS = 120
POLL_SECONDS = 0.1


def restart(command: str, target: Target) -> str:
    """Run the shell command, and wait until the server works.

    Return the reason if it does not work, otherwise "". The command must return when the server
    starts. Its processes can keep running.
    """
    deadline = time.monotonic() + RESTART_SECONDS
    with tempfile.TemporaryFile() as output:  # a pipe would stay open as long as the server
        try:
            process = subprocess.run(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RESTART_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"--restart: the command did not return within {RESTART_SECONDS} s"
        if process.returncode:
            output.seek(0)
            last_line = last_line_of(output.read())
            return f"--restart: the command exited with status {process.returncode}: {last_line}"

    while not target.is_working():
        if time.monotonic() > deadline:
            return f"--restart: the server did not work within {RESTART_SECONDS} s"
        time.sleep(POLL_SECONDS)
    return ""


def last_line_of(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after this time. Only the main thread can use this."""

    def expire(*_: Any) -> None:
        raise TimeoutError(f"the case took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
