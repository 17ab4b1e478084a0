"""Load generator of bench: several processes with several connections each.

Each connection has a thread, which sends the same request again and again. Without a rate, it sends
a request after the response to the previous one. With a rate, the requests are numbered. Request i
is sent i / rate seconds after the warm-up. Process p of n has the numbers p, p + n, p + 2n and so
on, and each of its threads takes the next one. The connections are distributed in the same way.
"""

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
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import ModelMetadata
from app.rest.request_reader import read_request

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
# Share of a CPU core from which a client process is the bottleneck.
MAX_BUSY = 0.9
# Time limit for the start of all processes.
START_SECONDS = 60
# Pause after an error.
PAUSE_SECONDS = 0.05
# Different errors in the report.
MAX_ERROR_KINDS = 20


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
    """Measurements.

    - latencies: of successful requests, in seconds.
    - errors: number of failed requests by error message.
    - last: time of the last response, in seconds after the warm-up.
    - busy: CPU time of the process per second.
    """

    latencies: array[float] = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)
    last: float = 0
    busy: float = 0

    def add(self, other: Outcome) -> None:
        """Add the measurements of another thread or process."""
        self.latencies += other.latencies
        self.errors += other.errors
        self.last = max(self.last, other.last)
        self.busy = max(self.busy, other.busy)


def make_plan(
    service: ServiceClient,
    path: Path | None,
    processes: int | None,
    concurrency: int,
    timeout: float,
    **options: Any,
) -> Plan:
    """Send one request and return the plan. Raise Failure if the request fails.

    The other `options` are fields of the plan.
    """
    model = read_model(service)
    connect = partial(open_transport, service, model.name, timeout)
    with closing(connect()) as transport:
        try:
            request = _read_request(path, model)
            body, headers = transport.encode(request)
            transport.send(body, headers)
        except InferenceError as error:
            raise to_failure(error, "The first request failed. ") from None

    processes = processes or max(1, usable_cores() // 2)
    return Plan(
        connect,
        body,
        headers=headers,
        timeout=timeout,
        concurrency=concurrency,
        processes=min(processes, concurrency),  # each needs a connection
        **options,
    )


def _read_request(path: Path | None, model: ModelMetadata) -> InferenceRequest:
    """Return the JSON request in a file, or without a file one with sample values."""
    body = path.read_bytes() if path else write_json(make_example(model))
    request = read_request(body)
    apply_declarations(request.inputs, model.inputs)
    return request


def run(plan: Plan) -> Outcome:
    """Run all processes. Return their combined measurements."""
    context = multiprocessing.get_context("spawn")
    outcome = Outcome()
    try:
        with context.Manager() as manager, ProcessPoolExecutor(plan.processes, context) as pool:
            start = manager.Barrier(plan.processes + 1)
            results = []
            for number in range(plan.processes):
                results.append(pool.submit(_run_process, plan, number, start))
            start.wait(START_SECONDS)
            for result in results:
                outcome.add(result.result())
    except (BrokenProcessPool, BrokenBarrierError):
        raise Failure("A process that sends requests ended too early") from None
    return outcome


def _run_process(plan: Plan, number: int, start: Any) -> Outcome:
    """Wait until all processes are ready, send this process's share of the requests, and return the
    measurements.

    `number` is that of the process, and `start` a barrier.
    """
    connections = len(range(number, plan.concurrency, plan.processes))
    request_numbers = itertools.count(number, plan.processes)
    start.wait(START_SECONDS)
    begin = time.monotonic() + plan.warm_up
    # Unlike ThreadPoolExecutor, a ThreadPool does not wait for threads after Ctrl-C.
    with ThreadPool(connections) as pool:
        arguments = [(plan, begin, request_numbers)] * connections
        results = pool.starmap_async(_run_thread, arguments)
        time.sleep(plan.warm_up)
        outcome = Outcome(busy=_measure_busy(plan.seconds))
        for result in results.get():
            outcome.add(result)
    return outcome


def _measure_busy(seconds: float) -> float:
    """Wait, and return the CPU time per second that the threads of this process have used."""
    begun = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - begun) / seconds


def _run_thread(plan: Plan, begin: float, request_numbers: Iterator[int]) -> Outcome:
    """Send requests over one connection, and return their measurements.

    Requests before `begin`, a time of time.monotonic(), are the warm-up, which is not measured.
    """
    outcome = Outcome()
    with closing(plan.connect()) as transport:
        while time.monotonic() < begin:
            with suppress(InferenceError):
                transport.send(plan.body, plan.headers)

        for start in _start_times(plan, begin, request_numbers):
            try:
                transport.send(plan.body, plan.headers)
                outcome.latencies.append(time.monotonic() - start)
            except InferenceError as error:
                outcome.errors[str(error)] += 1
                time.sleep(PAUSE_SECONDS)
            outcome.last = time.monotonic() - begin
    return outcome


def _start_times(plan: Plan, begin: float, request_numbers: Iterator[int]) -> Iterator[float]:
    """Wait until it is time for the next request, and yield its start time.

    With a rate, this is its scheduled time, which may have passed. So latencies include the delays
    that earlier slow responses have caused.
    """
    end = begin + plan.seconds
    if plan.rate is None:
        while (now := time.monotonic()) < end:
            yield now
        return

    for number in request_numbers:
        scheduled = begin + number / plan.rate
        if scheduled >= end:
            return
        pause = scheduled - time.monotonic()
        time.sleep(max(0.0, pause))
        # Late requests are also sent after the end, but not without a limit.
        if time.monotonic() > end + plan.timeout:
            return
        yield scheduled


def summary(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """Return the object for --json."""
    seconds = max(plan.seconds, outcome.last)
    count = len(outcome.latencies)
    milliseconds = np.array(outcome.latencies or [0.0]) * 1e3
    latencies = {"mean": round(milliseconds.mean(), 4)}
    for name, percent in PERCENTILES.items():
        latency = np.percentile(milliseconds, percent)
        latencies[name] = round(latency, 4)
    return {
        "processes": plan.processes,
        "seconds": round(seconds, 3),
        "requests": count,
        "rate": round(count / seconds, 1),
        "latency_ms": latencies,
        "errors": outcome.errors.total(),
        "error_kinds": dict(outcome.errors.most_common(MAX_ERROR_KINDS)),
        "client_busy": round(outcome.busy, 3),
        "client_was_the_limit": outcome.busy > MAX_BUSY,
    }


def plot(outcome: Outcome, path: str) -> None:
    """Write an image with a histogram of the latencies."""
    from matplotlib.figure import Figure

    milliseconds = np.array(outcome.latencies) * 1e3
    bin_edges = np.geomspace(milliseconds.min(), milliseconds.max() * 1.01, num=64)
    p99 = np.percentile(milliseconds, 99)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.hist(milliseconds, bin_edges.tolist())
    axes.set(xscale="log", xlabel="ms", ylabel="requests", title=f"p99: {p99:.3g} ms")
    figure.savefig(path, dpi=150)
