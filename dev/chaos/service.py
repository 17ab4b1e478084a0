"""Start the service for a scenario, and read its state from /proc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.processes import Running, children, gunicorn, resident

ROOT = Path(__file__).resolve().parents[2]
APP = "dev.chaos.models:echo()"
MIB = 2**20
PATIENCE = 30


@contextmanager
def serving(workers: int = 2, **settings: Any) -> Iterator[Running]:
    """Start the service and wait until all workers are ready. At the end, check that it exits with status 0."""
    with gunicorn(ROOT, APP, WORKERS=workers, **settings) as service:
        wait(lambda: loads(service) == workers, "the workers were not ready")
        yield service


def wait(condition: Callable[[], bool], fault: str, patience: float = PATIENCE) -> float:
    """Wait for the condition and return the duration. Raise AssertionError with `fault` after `patience` seconds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + patience, f"{fault} within {patience} s"
        time.sleep(0.01)
    return time.monotonic() - begun


def loads(service: Running) -> int:
    """Return how many times a worker became ready."""
    return service.log().count("Loaded the model")


def workers(service: Running) -> set[int]:
    return children(service.process.pid)


def replace_workers(service: Running) -> float:
    """Send SIGHUP and return the seconds until new workers have replaced the old ones."""
    before = workers(service)
    service.process.send_signal(signal.SIGHUP)
    return wait(
        lambda: len(workers(service)) == len(before) and not before & workers(service),
        "no new workers took over",
    )


def kill_worker(service: Running) -> float:
    """Send SIGKILL to a worker and return the seconds until its replacement is ready."""
    before = loads(service)
    os.kill(min(workers(service)), signal.SIGKILL)
    return wait(
        lambda: loads(service) > before, "no worker came in the place of the one that was killed"
    )


def memory(service: Running) -> float:
    """Return the memory of the largest worker in MiB."""
    return max(map(resident, workers(service))) / MIB


def descriptors(pid: int) -> int:
    """Return the number of open files of the process."""
    return len(os.listdir(f"/proc/{pid}/fd"))
