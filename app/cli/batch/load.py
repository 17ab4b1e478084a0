"""Load generator of bench: several processes with several connections each."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import numpy as np

from app.cli.batch.transports import Transport, open_transport, read_model, to_failure
from app.cli.client import ServiceClient
from app.cli.common import Failure
from app.config.resources import usable_cores
from app.inference.example import apply_declarations, make_example
from app.protocol.errors import InferenceError
from app.protocol.http_body import write_json
from app.rest.request_reader import read_request

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
FULL = 0.9  # share of a CPU core from which a client process is the bottleneck
START_SECONDS = 60
PAUSE_SECONDS = 0.05  # pause after an error


@dataclass(frozen=True)
class Plan:
    """The request and the command's options. `rate` is None for as many requests as possible."""

    connect: Callable[[], Transport]
    body: bytes
    headers: dict[str, str]
    timeout: float
    concurrency: int
    processes: int
    seconds: float
    warm_up: float
    rate: float | None


@dataclass
class Outcome:
    """Measurements. Latencies and `last`, the time of the last response, are in seconds. `busy` is in CPU cores."""

    latencies: array[float] = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)
    last: float = 0
    busy: float = 0

    def add(self, other: Outcome) -> None:
        self.latencies += other.latencies
        self.errors += other.errors
        self.last, self.busy = max(self.last, other.last), max(self.busy, other.busy)


def make_plan(service: ServiceClient, path: Path | None, **options: Any) -> Plan:
    """Send one request and return the plan. Raise Failure if the request fails."""
    model = read_model(service)
    connect = partial(open_transport, service, model.name, options["timeout"])
    with closing(connect()) as transport:
        try:
            request = read_request(path.read_bytes() if path else write_json(make_example(model)))
            apply_declarations(request.inputs, model.inputs)
            body, headers = transport.encode(request)
            transport.send(body, headers)
        except InferenceError as error:
            raise to_failure(error, "The first request failed. ") from None
    processes = options["processes"] or max(1, usable_cores() // 2)
    options["processes"] = min(processes, options["concurrency"])
    return Plan(connect, body, headers, **options)


def run(plan: Plan) -> Outcome:
    """Run all processes. Return their combined measurements."""
    context, outcome = multiprocessing.get_context("spawn"), Outcome()
    try:
        with context.Manager() as manager, ProcessPoolExecutor(plan.processes, context) as pool:
            start = manager.Barrier(plan.processes + 1)
            parts = [
                pool.submit(_run_process, plan, number, start) for number in range(plan.processes)
            ]
            start.wait(START_SECONDS)
            for part in parts:
                outcome.add(part.result())
    except (BrokenProcessPool, BrokenBarrierError):
        raise Failure("A process that sends requests ended too early") from None
    return outcome


def _run_process(plan: Plan, number: int, start: Any) -> Outcome:
    """Wait until all processes are ready, send this process's share of the requests, and return the measurements."""
    connections = len(range(number, plan.concurrency, plan.processes))
    slots = itertools.count(number, plan.processes)
    start.wait(START_SECONDS)
    begin = time.monotonic() + plan.warm_up
    with ThreadPool(
        connections
    ) as pool:  # unlike ThreadPoolExecutor, it does not wait for threads after Ctrl-C
        parts = pool.starmap_async(_run_thread, [(plan, begin, slots)] * connections)
        time.sleep(plan.warm_up)
        used = time.process_time()
        time.sleep(plan.seconds)
        outcome = Outcome(busy=(time.process_time() - used) / plan.seconds)
        for part in parts.get():
            outcome.add(part)
    return outcome


def _run_thread(plan: Plan, begin: float, slots: Iterator[int]) -> Outcome:
    """Send requests over one connection. Requests before `begin` are the warm-up."""
    end, outcome = begin + plan.seconds, Outcome()
    with closing(plan.connect()) as transport:
        while time.monotonic() < begin:
            with suppress(InferenceError):  # ignore errors during the warm-up
                transport.send(plan.body, plan.headers)
        while True:
            start = time.monotonic()
            if plan.rate:
                # Measure from the scheduled time, so that latencies include delays caused by earlier slow responses.
                start = begin + next(slots) / plan.rate
                time.sleep(max(0.0, min(start, end) - time.monotonic()))
            if start >= end or time.monotonic() > end + plan.timeout:
                return outcome
            try:
                transport.send(plan.body, plan.headers)
                outcome.latencies.append(time.monotonic() - start)
            except InferenceError as error:
                outcome.errors[str(error)] += 1
                time.sleep(PAUSE_SECONDS)
            outcome.last = time.monotonic() - begin


def summary(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """Return the object for --json."""
    times = np.array(outcome.latencies or [0.0]) * 1e3
    seconds = max(plan.seconds, outcome.last)
    percentiles = {
        name: round(np.percentile(times, percent), 4) for name, percent in PERCENTILES.items()
    }
    return {
        "processes": plan.processes,
        "seconds": round(seconds, 3),
        "requests": len(outcome.latencies),
        "rate": round(len(outcome.latencies) / seconds, 1),
        "latency_ms": {"mean": round(times.mean(), 4), **percentiles},
        "errors": outcome.errors.total(),
        "error_kinds": dict(outcome.errors.most_common(20)),
        "client_busy": round(outcome.busy, 3),
        "client_was_the_limit": outcome.busy > FULL,
    }


def plot(outcome: Outcome, path: str) -> None:
    """Write an image with a histogram of the latencies."""
    from matplotlib.figure import Figure

    times = np.array(outcome.latencies) * 1e3
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.hist(times, np.geomspace(times.min(), times.max() * 1.01, 64).tolist())
    axes.set(
        xscale="log",
        xlabel="ms",
        ylabel="requests",
        title=f"p99: {np.percentile(times, 99):.3g} ms",
    )
    figure.savefig(path, dpi=150)
