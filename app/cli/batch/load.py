"""Send one request over and over, from several processes with several connections each."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import Any

from app.cli.batch.latency import Latencies
from app.cli.batch.model import Model
from app.cli.batch.terminal import progress_bar
from app.cli.batch.transports import Retryable, connect
from app.cli.common import FAILED, NOT_READY, Failure
from app.cli.service import Service
from app.errors import InferenceError
from app.types import InferenceRequest

START_SECONDS = 60
PAUSE_SECONDS = 0.05  # after an error
ERRORS_KEPT = 20
ERRORS = (InferenceError, Retryable)


@dataclass(frozen=True)
class Plan:
    """What is sent, and how. `rate` is in requests per second, None for as many as possible."""

    service: Service
    model: Model
    form: str
    concurrency: int
    processes: int
    seconds: float
    warm_up: float
    timeout: float
    rate: float | None
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def connect(self) -> Any:
        return connect(self.service, self.model, self.timeout, self.form)


@dataclass
class Outcome:
    """`seconds` ends with the last response. `busy` is the CPU time of a process, as a share of one core."""

    latencies: Latencies = field(default_factory=Latencies)
    errors: Counter[str] = field(default_factory=Counter)
    seconds: float = 0
    busy: float = 0

    def add(self, other: Outcome) -> None:
        self.latencies.add(other.latencies)
        self.errors += other.errors
        self.seconds, self.busy = max(self.seconds, other.seconds), max(self.busy, other.busy)


def encode(plan: Plan, request: InferenceRequest) -> Plan:
    """Return the plan with the request. Raise Failure if the service does not respond to it."""
    connection = plan.connect()
    try:
        body, headers = connection.encode(request)
        connection.send(body, headers)
    except ERRORS as error:
        is_answered = isinstance(error, InferenceError) or error.is_answered
        raise Failure(f"The first request failed: {error}", FAILED if is_answered else NOT_READY) from None
    finally:
        connection.close()
    return replace(plan, body=body, headers=headers)


def run(plan: Plan) -> Outcome:
    """Send requests from all processes and return what they measured."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(plan.processes + 1)
    pipes, children = [], []
    try:
        for number in range(plan.processes):
            ours, theirs = context.Pipe(duplex=False)
            share = replace(plan, concurrency=len(range(number, plan.concurrency, plan.processes)))
            children.append(context.Process(target=_work, args=(share, number, barrier, theirs), daemon=True))
            children[-1].start()
            theirs.close()
            pipes.append(ours)
        barrier.wait(START_SECONDS)
        return _collect(pipes, plan.warm_up + plan.seconds)
    except (EOFError, threading.BrokenBarrierError):
        raise Failure("A process that sends requests ended too early") from None
    finally:
        for child in children:
            child.terminate()
            child.join()


def _collect(pipes: list[Any], seconds: float) -> Outcome:
    """Show the time that has passed, and return the sum of the outcomes."""
    begun, outcome = time.monotonic(), Outcome()
    with progress_bar() as bar:
        task = bar.add_task("", total=seconds)
        while pipes:
            for pipe in wait(pipes, timeout=0.1):
                outcome.add(pipe.recv())  # type: ignore[union-attr]
                pipes.remove(pipe)
            bar.update(task, completed=min(time.monotonic() - begun, seconds))
    return outcome


def _work(plan: Plan, number: int, barrier: Any, pipe: Any) -> None:
    """Run the threads of one process, and send what they measured."""
    with suppress(OSError, KeyboardInterrupt, threading.BrokenBarrierError):  # the parent has ended
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
        pipe.send(whole)


def _drive(plan: Plan, outcome: Outcome, begin: float, slots: Iterator[int]) -> None:
    """Send requests over one connection. Those before `begin` are the warm-up."""
    connection = plan.connect()
    end = begin + plan.seconds
    while time.monotonic() < begin:
        with suppress(*ERRORS):
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
            outcome.latencies.record(time.monotonic() - start)
        except ERRORS as error:
            is_kept = str(error) in outcome.errors or len(outcome.errors) < ERRORS_KEPT
            outcome.errors[str(error) if is_kept else "other errors"] += 1
            time.sleep(PAUSE_SECONDS)
        outcome.seconds = time.monotonic() - begin
    connection.close()
