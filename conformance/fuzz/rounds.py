"""A round: some hundred requests of one kind, drawn by hypothesis from one seed, sent and judged one after another."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Flaky, HypothesisWarning

from conformance.client import Http
from conformance.fuzz.requests import KINDS
from conformance.fuzz.wire import BROKEN, PATIENCE_SECONDS, Clients
from conformance.model import NAME
from tests.service.wires import Grpc, Rest, Sent

# Spent on making a request that failed smaller.
SHRINK_SECONDS = 10
# Answers after which a smaller request would tell less: the service hangs or is gone.
GONE = ("no answer", "no connection", "UNAVAILABLE", "DEADLINE_EXCEEDED")
GOOD: Sent = ("int32_in", "INT32", [2], [5, -6])


class Fault(Exception):
    """An answer that is wrong."""


class Enough(BaseException):
    """Ends hypothesis's search for a smaller request; an Exception would be one more failure to it."""


@dataclass
class Result:
    """What came of some requests: how many got which status, how long the slowest took, and what to tell of a fault."""

    kind: str
    statuses: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    fault: str = ""
    request: str = ""

    @property
    def requests(self) -> int:
        return sum(self.statuses.values())

    def note(self, status: str, seconds: float) -> None:
        self.statuses[status] += 1
        self.slowest = max(self.slowest, seconds)

    def blame(self, fault: str, request: str) -> None:
        """Keeps the smallest request that failed."""
        if not self.fault or len(request) < len(self.request):
            self.fault, self.request = fault, request


def run_round(kind: str, number: int, count: int, http_port: int, grpc_port: int) -> Result:
    """Sends `count` requests of `kind` drawn from the seed `number`, fewer where one fails, and last two good ones."""
    result = Result(kind)
    with Clients(http_port, grpc_port) as clients, warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)  # of a large request that failed
        try:
            search(result, clients, number, count)
        except (Fault, Enough, Flaky):
            result.fault += f" (kind {kind}, seed {number})"
        if not result.fault and (fault := still_works(clients)):
            result.blame(f"{fault} after the requests of kind {kind}, seed {number}", "a good one")
    return result


def search(result: Result, clients: Clients, number: int, count: int) -> None:
    deadline = float("inf")

    @seed(number)
    @settings(
        max_examples=count,
        phases=(Phase.generate, Phase.shrink),
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(KINDS[result.kind][0])
    def attempt(request: Any) -> None:
        nonlocal deadline
        begun = time.perf_counter()
        status, fault = send(request, clients)
        seconds = time.perf_counter() - begun
        result.note(status, seconds)
        if seconds > PATIENCE_SECONDS:
            fault = fault or f"{status} after {seconds:.1f} s"
        if fault:
            result.blame(fault, str(request))
            if status in GONE:
                raise Enough
            deadline = min(deadline, time.monotonic() + SHRINK_SECONDS)
            raise Fault(fault)
        if time.monotonic() > deadline:
            raise Enough

    attempt()


def send(request: Any, clients: Clients) -> tuple[str, str]:
    try:
        return request.send(clients)
    except OSError as error:
        return "no connection", f"no connection: {error!r}"


def still_works(clients: Clients) -> str:
    """What is wrong with the answers to a good request over REST and over gRPC; empty where nothing is."""
    http = Http(f"http://127.0.0.1:{clients.http_port}")
    try:
        for form in (Rest(http, binary=True, model=NAME), Grpc(clients.channel, model=NAME)):
            answer = form.infer([GOOD], ["int32_out"])
            if answer.outputs != {"int32_out": GOOD[1:]}:
                return f"a good request got {answer}"
        return ""
    except BROKEN as error:
        return f"a good request got no answer: {error!r}"
    finally:
        http.close()
