"""Failures of workers: SIGKILL, a temporary stop, and repeated replacement."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from dev.chaos.load import load
from dev.chaos.report import Outcome
from dev.chaos.scenarios.base import Options, scenario
from dev.chaos.service import (
    MIB,
    descriptors,
    kill_worker,
    loads,
    replace_workers,
    serving,
    wait,
    workers,
)
from tests.kit.processes import Running, resident

CLIENTS = 8
FROZEN_SECONDS = 3
MOST_GROWTH_MIB = 4
SETTLE_SECONDS = 0.5
# Number of workers in the scenario `restarts`.
MANY = 4


@scenario("SIGKILL of a worker")
def kill(options: Options) -> Outcome:
    """Kill workers. Each client has one request in flight, so a kill can lose one request per client."""
    outcome = Outcome()
    times: list[float] = []
    with serving(CHAOS_SECONDS=0.01) as service:
        end = time.monotonic() + options.seconds
        with load([service], clients=CLIENTS) as outcome.tallies:
            while not times or time.monotonic() < end:
                times.append(kill_worker(service))
                time.sleep(min(1, options.seconds / 10))
    pause = max(tally.pause for tally in outcome.tallies.values())
    outcome.figures = {
        "kills": len(times),
        "lost requests per kill": f"{sum(tally.losses for tally in outcome.tallies.values()) / len(times):.1f}",
        "longest time to the replacement, s": f"{max(times):.1f}",
        "longest time without a response, s": f"{pause:.2f}",
    }
    outcome.check_losses(most=CLIENTS * len(times))
    return outcome


@scenario("SIGSTOP of a worker for 3 s")
def freeze(options: Options) -> Outcome:
    outcome = Outcome()
    with serving() as service:
        before = workers(service)
        with load([service]) as outcome.tallies:
            time.sleep(options.seconds / 5)
            frozen = min(before)
            os.kill(frozen, signal.SIGSTOP)
            try:
                time.sleep(FROZEN_SECONDS)
            finally:
                os.kill(frozen, signal.SIGCONT)
            time.sleep(options.seconds / 5)
        outcome.check(
            workers(service) == before, "a worker that was stopped for a while was replaced"
        )
    worst = max(tally.worst for tally in outcome.tallies.values())
    outcome.figures = {"slowest response, s": f"{worst:.1f}"}
    outcome.check_losses()
    return outcome


@scenario("Load after workers were killed and replaced repeatedly")
def restarts(options: Options) -> Outcome:
    """Replace workers, half of them by SIGKILL and half by SIGHUP.

    Check the open files and the memory of the master, and the files on disk.
    """
    outcome, count = Outcome(), 0
    with tempfile.TemporaryDirectory() as folder:
        temporary, metrics = Path(folder) / "tmp", Path(folder) / "metrics"
        temporary.mkdir()
        metrics.mkdir()
        with serving(MANY, TMPDIR=temporary, PROMETHEUS_MULTIPROC_DIR=metrics) as service:
            early = None
            while count < options.restarts:
                kill_all(service)
                replace_workers(service)
                count += 2 * MANY
                early = early or wait_for_stable_figures(service, temporary, metrics)
            late = wait_for_stable_figures(service, temporary, metrics)
            with load([service]) as outcome.tallies:
                time.sleep(options.seconds / 5)
    outcome.check_losses()
    assert early is not None
    outcome.figures = {"workers replaced": count}
    for name, value in late.items():
        outcome.figures[name] = f"{early[name]:.0f} → {value:.0f}"
        slack = MOST_GROWTH_MIB if "MiB" in name else 0
        outcome.check(
            value <= early[name] + slack, f"{name}: from {early[name]:.1f} to {value:.1f}"
        )
    return outcome


def kill_all(service: Running) -> None:
    before = loads(service)
    for pid in workers(service):
        os.kill(pid, signal.SIGKILL)
    wait(lambda: loads(service) == before + MANY, "the killed workers were not replaced")


def wait_for_stable_figures(service: Running, *folders: Path) -> dict[str, float]:
    """Return figures when two samples have equal file counts, because the master cleans up after workers exit."""
    while True:
        before = resource_figures(service, *folders)
        time.sleep(SETTLE_SECONDS)
        found = resource_figures(service, *folders)
        if all(found[name] == value for name, value in before.items() if "MiB" not in name):
            return found


def resource_figures(service: Running, *folders: Path) -> dict[str, float]:
    master = service.process.pid
    found = {
        "open files of the master": descriptors(master),
        "memory of the master, MiB": resident(master) / MIB,
    }
    for folder in folders:
        found[f"files in {folder.name}"] = sum(each.is_file() for each in folder.rglob("*"))
    return found
