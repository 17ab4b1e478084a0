"""The service under trial, and what /proc shows of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.fuzz.watch import children, resident
from tests.service.processes import Running, gunicorn

ROOT = Path(__file__).resolve().parents[1]
APP = "chaos.models:echo()"
MIB = 2**20
PATIENCE = 30


@contextmanager
def serving(workers: int = 2, **settings: Any) -> Iterator[Running]:
    """The service, each of its workers ready. It must exit with 0 at the end."""
    with gunicorn(ROOT, APP, WORKERS=workers, **settings) as service:
        wait(lambda: loads(service) == workers, "the workers were not ready")
        yield service


def wait(condition: Callable[[], bool], fault: str, patience: float = PATIENCE) -> float:
    """The seconds until the condition held; AssertionError with the fault where it does not in time."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + patience, f"{fault} within {patience} s"
        time.sleep(0.01)
    return time.monotonic() - begun


def loads(service: Running) -> int:
    """How often a worker was ready."""
    return service.log().count("the model was loaded")


def workers(service: Running) -> set[int]:
    return children(service.process.pid)


def replace_workers(service: Running) -> float:
    """HUP; the seconds until new workers have taken over and the old ones are gone."""
    before = workers(service)
    service.process.send_signal(signal.SIGHUP)
    return wait(
        lambda: len(workers(service)) == len(before) and not before & workers(service), "no new workers took over"
    )


def kill_worker(service: Running) -> float:
    """SIGKILL to one of the workers; the seconds until another is ready in its place."""
    before = loads(service)
    os.kill(min(workers(service)), signal.SIGKILL)
    return wait(lambda: loads(service) > before, "no worker came in the place of the one that was killed")


def memory(service: Running) -> float:
    """MiB that the largest of the workers holds."""
    return max(map(resident, workers(service))) / MIB


def descriptors(pid: int) -> int:
    """Files that the process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
