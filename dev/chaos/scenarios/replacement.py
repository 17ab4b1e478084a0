"""Operations: reload, and shutdown of one instance."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import Any

from dev.chaos.load import load
from dev.chaos.report import Outcome
from dev.chaos.scenarios.base import Options, scenario
from dev.chaos.service import APP, ROOT, replace_workers, serving
from tests.kit.processes import Running, free_ports, started, stop

STOPS = 3
BUSY_SECONDS = 0.01


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
