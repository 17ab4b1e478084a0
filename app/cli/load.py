"""Load on a service: processes of threads, each thread with a connection, that send one prepared request."""

from __future__ import annotations

import http.client
import itertools
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from app.cli.common import NOT_READY, Failure
from app.cli.histogram import Histogram
from app.cli.senders import words
from app.cli.service import Service, reason
from app.config import joined

TELL_SECONDS = 0.2
RECOVER_SECONDS = 0.05
KINDS_KEPT = 20


@dataclass(frozen=True)
class Plan:
    """What is sent, by how many, for how long; `rate` requests a second, or as many as come back."""

    service: Service
    path: str
    body: bytes
    headers: dict[str, str]
    concurrency: int
    processes: int
    seconds: float
    warm_up: float
    timeout: float
    rate: float | None


@dataclass
class Outcome:
    """What has come of it so far."""

    histogram: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)
    last: float = 0
    busy: float = 0  # of one processor, the share that the process used

    def add(self, other: Outcome) -> None:
        self.histogram.add(other.histogram)
        self.errors += other.errors
        self.last, self.busy = max(self.last, other.last), max(self.busy, other.busy)


class Failed(Exception):
    """A request without an answer to measure."""


class RestAsker:
    """Writes the bytes and reads the answer; http.client alone would be the limit."""

    def __init__(self, plan: Plan):
        self.connection = plan.service.connect(plan.timeout)
        self.parts = plan.path, plan.body, {**plan.service.headers, **plan.headers}
        self.request = b""

    def connect(self) -> None:
        self.connection.close()
        self.connection.connect()
        path, body, headers = self.parts
        lines = [f"POST {path} HTTP/1.1", f"Host: {joined(self.connection.host, self.connection.port)}"]
        lines += [f"{name}: {value}" for name, value in {**headers, "Content-Length": len(body)}.items()]
        self.request = "\r\n".join([*lines, "", ""]).encode() + body

    def ask(self) -> None:
        try:
            if not self.connection.sock:
                self.connect()
            self.connection.sock.sendall(self.request)
            self.read(self.connection.sock)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.connection.close()
            raise Failed(f"no answer: {reason(error)}") from None

    def read(self, sock: Any) -> None:
        data = sock.recv(2**16)
        while (end := data.find(b"\r\n\r\n")) < 0:
            if not (more := sock.recv(2**16)):
                raise http.client.RemoteDisconnected("the connection was closed")
            data += more
        head = data[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        left = int(head[at + 17 :].split(b"\r\n", 1)[0]) - (len(data) - end - 4)
        pieces = [data[end + 4 :]]
        while left > 0:
            if not (more := sock.recv(min(left, 2**20))):
                raise http.client.RemoteDisconnected("the connection was closed")
            pieces.append(more)
            left -= len(more)
        if b"\r\nconnection: close" in head:
            self.connection.close()
        if data[9:12] != b"200":
            raise Failed(f"{data[9:12].decode(errors='replace')}: {words(b''.join(pieces))}")

    def close(self) -> None:
        self.connection.close()


class GrpcAsker:
    def __init__(self, plan: Plan):
        self.plan, self.channel = plan, plan.service.channel(("grpc.use_local_subchannel_pool", 1))
        self.call = self.channel.unary_unary(plan.path)
        self.metadata = [*plan.service.headers.items()]

    def ask(self) -> None:
        import grpc

        try:
            self.call(self.plan.body, timeout=self.plan.timeout, metadata=self.metadata)
        except grpc.RpcError as error:
            raise Failed(f"{error.code().name}: {error.details()}") from None

    def close(self) -> None:
        self.channel.close()


def run(plan: Plan, show: Callable[[Outcome, float], None]) -> Outcome:
    """Drives the service as planned, and shows how far it is; the outcome's `last` is in seconds from the begin.

    Failure where the service does not answer the first request as it should.
    """
    check(plan)
    context = multiprocessing.get_context("spawn")
    shares = [len(range(number, plan.concurrency, plan.processes)) for number in range(plan.processes)]
    pipes, children = [], []
    try:
        for number, share in enumerate(shares):
            ours, theirs = context.Pipe()
            part = replace(plan, concurrency=share)
            children.append(context.Process(target=work, args=(part, number, theirs), daemon=True))
            children[-1].start()
            theirs.close()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()  # it is there
        begin = time.monotonic() + plan.warm_up
        for pipe in pipes:
            pipe.send(begin)
        return collect(pipes, begin, show)
    except EOFError:
        raise Failure("a process that sends requests has ended too early") from None
    finally:
        for child in children:
            child.terminate()
            child.join()
        for pipe in pipes:
            pipe.close()


def check(plan: Plan) -> None:
    asker = make_asker(plan)
    try:
        asker.ask()
    except Failed as error:
        gone = str(error).startswith(("no answer", "UNAVAILABLE", "503"))
        raise Failure(f"the first request failed: {error}", NOT_READY if gone else 1) from None
    finally:
        asker.close()


def make_asker(plan: Plan) -> Any:
    return GrpcAsker(plan) if plan.service.grpc else RestAsker(plan)


def collect(pipes: list[Connection], begin: float, show: Callable[[Outcome, float], None]) -> Outcome:
    latest: dict[Any, Outcome] = {}
    left = set(pipes)
    while left:
        ready: Any = wait(left)
        for pipe in ready:
            latest[pipe], is_end = pipe.recv()
            if is_end:
                left.discard(pipe)
        whole = Outcome()
        for each in latest.values():
            whole.add(each)
        show(whole, time.monotonic() - begin)
    return whole


def work(plan: Plan, number: int, pipe: Connection) -> None:
    """The life of a process: threads that ask, while this one tells what has come of it."""
    try:
        pipe.send(None)
        begin = pipe.recv()
        slots = itertools.count(number, plan.processes)
        outcomes = [Outcome() for _ in range(plan.concurrency)]
        threads = [threading.Thread(target=drive, args=(plan, each, begin, slots), daemon=True) for each in outcomes]
        for thread in threads:
            thread.start()
        time.sleep(max(0, begin - time.monotonic()))
        used = time.process_time()
        end = begin + plan.seconds
        busy = 0.0
        while any(thread.is_alive() for thread in threads):
            threads[0].join(TELL_SECONDS) if threads[0].is_alive() else time.sleep(TELL_SECONDS / 10)
            now = time.monotonic()
            if now <= end + TELL_SECONDS:
                busy = (time.process_time() - used) / max(now - begin, 1e-9)
            pipe.send((told(outcomes, begin, busy), False))
        pipe.send((told(outcomes, begin, busy), True))
    except (OSError, EOFError, KeyboardInterrupt):
        return  # whoever started it is gone


def told(outcomes: list[Outcome], begin: float, busy: float) -> Outcome:
    whole = Outcome(busy=busy)
    for each in outcomes:
        whole.add(each)
    whole.last = max(0.0, whole.last - begin)
    return whole


def drive(plan: Plan, outcome: Outcome, begin: float, slots: Iterator[int]) -> None:
    """One connection: until `begin` as warm-up, then for the seconds of the plan."""
    asker = make_asker(plan)
    end = begin + plan.seconds
    while time.monotonic() < begin:
        attempt(asker)
    while True:
        start = time.monotonic()
        if plan.rate:
            # counted from when it should have begun: a service that is late is late for those that wait, too
            start = begin + next(slots) / plan.rate
            time.sleep(max(0.0, min(start, end) - time.monotonic()))
        if start >= end or time.monotonic() > end + plan.timeout:
            break
        error = attempt(asker)
        outcome.last = time.monotonic()
        if error is None:
            outcome.histogram.record(outcome.last - start)
            continue
        kind = error if error in outcome.errors or len(outcome.errors) < KINDS_KEPT else "other errors"
        outcome.errors[kind] += 1
        time.sleep(RECOVER_SECONDS)
    asker.close()


def attempt(asker: Any) -> str | None:
    """What went wrong, if anything did."""
    try:
        asker.ask()
    except Failed as error:
        return str(error)
    return None
