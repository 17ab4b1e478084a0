"""Operations: reload, shutdown of one instance, and an invalid model file."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dev.chaos.load import load
from dev.chaos.report import Outcome
from dev.chaos.scenarios.base import Options, scenario
from dev.chaos.service import APP, ROOT, loads, replace_workers, serving, wait, workers
from tests.kit.processes import Running, free_ports, started, stop

MOST_START_SECONDS = 20
STOPS = 3
BUSY_SECONDS = 0.01
# Two old workers, two new workers, and two that are shutting down.
MOST_PROCESSES = 6


@scenario("Repeated SIGHUP")
def rolling(options: Options) -> Outcome:
    return reload_repeatedly(options)


@scenario("Repeated SIGHUP, model of 10 ms")
def rolling_busy(options: Options) -> Outcome:
    return reload_repeatedly(options, CHAOS_SECONDS=BUSY_SECONDS)


def reload_repeatedly(options: Options, **settings: Any) -> Outcome:
    outcome = Outcome()
    times: list[float] = []
    with serving(**settings) as service:
        end = time.monotonic() + options.seconds
        with load([service]) as outcome.tallies:
            while not times or time.monotonic() < end:
                times.append(replace_workers(service))
                time.sleep(min(1, options.seconds / 10))
    outcome.figures = {"reloads of 2 workers": len(times), "longest reload, s": f"{max(times):.1f}"}
    outcome.check_losses()
    return outcome


@scenario("Five SIGHUPs during load()")
def repeated_sighup(options: Options) -> Outcome:
    """Check that new workers do not accumulate, because each holds a model."""
    outcome, most = Outcome(), 0
    with tempfile.TemporaryDirectory() as folder:
        slow = Path(folder) / "wait"
        with serving(CHAOS_WAIT=slow) as service, load([service], clients=2) as outcome.tallies:
            slow.touch()
            for _ in range(5):
                service.process.send_signal(signal.SIGHUP)
                time.sleep(options.seconds / 10)
                most = max(most, len(workers(service)))
            slow.unlink()
            wait(lambda: len(workers(service)) == 2, "the old workers stayed")
    outcome.figures = {"most processes at once": most}
    outcome.check_losses()
    outcome.check(most <= MOST_PROCESSES, f"{most} workers at once, of 2")
    return outcome


@scenario("SIGTERM to one of two instances")
def stop_one_instance(options: Options) -> Outcome:
    return stop_alternately(options)


@scenario("SIGTERM to one of two instances, model of 10 ms")
def stop_busy_instance(options: Options) -> Outcome:
    return stop_alternately(options, CHAOS_SECONDS=BUSY_SECONDS)


def stop_alternately(options: Options, **settings: Any) -> Outcome:
    outcome = Outcome()
    times: list[float] = []
    codes: list[int | None] = []
    with ExitStack() as stack:
        ports = [free_ports(2) for _ in range(2)]
        services = [start(stack, *each, **settings) for each in ports]
        with load(services) as outcome.tallies:
            for turn in range(STOPS):
                time.sleep(min(1, options.seconds / 10))
                begun = time.monotonic()
                stop(services[turn % 2].process)
                times.append(time.monotonic() - begun)
                codes.append(services[turn % 2].process.returncode)
                if turn + 1 < STOPS:
                    services[turn % 2] = start(stack, *ports[turn % 2], **settings)
    outcome.figures = {"shutdowns": STOPS, "longest shutdown, s": f"{max(times):.1f}"}
    outcome.check_losses()
    outcome.check(not any(codes), f"exit codes {codes}")
    return outcome


def start(stack: ExitStack, http: int, grpc: int, **more: Any) -> Running:
    """Start an instance with one worker on these ports."""
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "WORKERS": 1,
        "SHUTDOWN_DELAY_SECONDS": 1,
        **more,
    }
    return stack.enter_context(started([sys.executable, "-m", "gunicorn", APP], ROOT, settings))


@scenario("load() fails after SIGHUP, and at startup")
def broken_load(options: Options) -> Outcome:
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "broken"
        with serving(CHAOS_BROKEN=broken) as service:
            before = workers(service)
            with load([service]) as outcome.tallies:
                broken.touch()
                service.process.send_signal(signal.SIGHUP)
                wait(lambda: service.log().count("load() failed") == 2, "load() did not fail")
                wait(lambda: workers(service) == before, "the old workers are not those that stay")
                time.sleep(options.seconds / 5)
                outcome.check(workers(service) == before, "the old workers are not those that stay")
                broken.unlink()
                begun = loads(service)
                replace_workers(service)
                outcome.check(loads(service) >= begun + 2, "the next HUP did not load the model")
        outcome.check_losses()
        broken.touch()
        start_broken(outcome, broken)
    return outcome


def start_broken(outcome: Outcome, broken: Path) -> None:
    """Start a service whose load() fails."""
    http, grpc = free_ports(2)
    ready_results = []

    def has_ended(running: Running) -> bool:
        ready_results.append(running.ready())
        return running.process.poll() is not None

    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "WORKERS": 2,
        "CHAOS_BROKEN": broken,
    }
    begun = time.monotonic()
    with started([sys.executable, "-m", "gunicorn", APP], ROOT, settings, has_ended) as service:
        seconds = time.monotonic() - begun
        code = service.process.returncode
    outcome.figures = {
        "failed startup exits after, s": f"{seconds:.1f}",
        "exit status of the failed startup": code,
    }
    outcome.check(code not in (0, None), f"a start whose load() fails exits with {code}")
    outcome.check(
        seconds < MOST_START_SECONDS, f"a start whose load() fails takes {seconds:.1f} s to end"
    )
    outcome.check(not any(ready_results), "a start whose load() fails was ready for a while")
