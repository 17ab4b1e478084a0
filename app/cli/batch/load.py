"""Send one request over and over, from several processes with several connections each."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from app.cli.batch.terminal import progress_bar
from app.cli.batch.transports import Model, Retryable, connect
from app.cli.common import Failure
from app.cli.service import Service
from app.errors import InferenceError

START_SECONDS = 60
PAUSE_SECONDS = 0.05  # after an error
FAILURES = (InferenceError, Retryable)
barrier: Any = None  # of a process that sends requests: all of them start together


@dataclass(frozen=True)
class Plan:
    """The request, and the way to send it. `rate` is in requests per second, None for as many as possible."""

    service: Service
    model: Model
    form: str
    concurrency: int
    processes: int
    seconds: float
    warm_up: float
    timeout: float
    rate: float | None
    body: bytes
    headers: dict[str, str]

    def connect(self) -> Any:
        return connect(self.service, self.model, self.timeout, self.form)


@dataclass
class Outcome:
    """Latencies and `last`, the time of the last response, are in seconds. `busy` is the share of a CPU core."""

    latencies: array[float] = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)
    last: float = 0
    busy: float = 0

    def add(self, other: Outcome) -> None:
        self.latencies += other.latencies
        self.errors += other.errors
        self.last, self.busy = max(self.last, other.last), max(self.busy, other.busy)


def run(plan: Plan) -> Outcome:
    """Send requests from all processes and return what they measured."""
    context = multiprocessing.get_context("spawn")
    start, seconds, outcome = context.Barrier(plan.processes + 1), plan.warm_up + plan.seconds, Outcome()
    shares = [len(range(number, plan.concurrency, plan.processes)) for number in range(plan.processes)]
    try:
        with ProcessPoolExecutor(plan.processes, context, _set_barrier, (start,)) as pool, progress_bar() as bar:
            parts = [pool.submit(_work, replace(plan, concurrency=each), n) for n, each in enumerate(shares)]
            start.wait(START_SECONDS)
            begun, task = time.monotonic(), bar.add_task("", total=seconds)
            while wait(parts, timeout=0.1).not_done:
                bar.update(task, completed=min(time.monotonic() - begun, seconds))
            for part in parts:
                outcome.add(part.result())
    except (BrokenProcessPool, threading.BrokenBarrierError):
        raise Failure("A process that sends requests ended too early") from None
    return outcome


def _set_barrier(start: Any) -> None:
    global barrier
    barrier = start


def _work(plan: Plan, number: int) -> Outcome:
    """Run the threads of one process, and return what they measured."""
    barrier.wait(START_SECONDS)
    begin = time.monotonic() + plan.warm_up
    slots = itertools.count(number, plan.processes)
    outcomes = [Outcome() for _ in range(plan.concurrency)]
    threads = [threading.Thread(target=_drive, args=(plan, each, begin, slots), daemon=True) for each in outcomes]
    for thread in threads:
        thread.start()
    time.sleep(plan.warm_up)
    used = time.process_time()
    time.sleep(plan.seconds)
    whole = Outcome(busy=(time.process_time() - used) / plan.seconds)
    for thread, outcome in zip(threads, outcomes, strict=True):
        thread.join()
        whole.add(outcome)
    return whole


def _drive(plan: Plan, outcome: Outcome, begin: float, slots: Iterator[int]) -> None:
    """Send requests over one connection. Those before `begin` are the warm-up."""
    connection, end = plan.connect(), begin + plan.seconds
    while time.monotonic() < begin:
        with suppress(*FAILURES):
            connection.send(plan.body, plan.headers)
    while True:
        start = time.monotonic()
        if plan.rate:
            # Measured from the planned time, so that a slow response is also slow for the requests that it delays.
            start = begin + next(slots) / plan.rate
            time.sleep(max(0.0, min(start, end) - time.monotonic()))
        if start >= end or time.monotonic() > end + plan.timeout:
            break
        try:
            connection.send(plan.body, plan.headers)
            outcome.latencies.append(time.monotonic() - start)
        except FAILURES as error:
            outcome.errors[str(error)] += 1
            time.sleep(PAUSE_SECONDS)
        outcome.last = time.monotonic() - begin
    connection.close()
