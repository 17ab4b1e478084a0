"""A round: requests of one kind, which hypothesis generates from a seed, sent and checked in sequence."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Flaky, HypothesisWarning

from oip_conformance.client import Http
from oip_conformance.model import NAME
from oip_conformance.wires import Grpc, InputTuple, Rest
from tests.fuzz.requests import KINDS
from tests.fuzz.wire import BROKEN, RESPONSE_TIMEOUT_SECONDS, Clients

# Time limit for shrinking a failed request.
SHRINK_SECONDS = 10
# Outcomes after which shrinking is pointless, because the service does not respond or has exited.
GONE = ("no response", "no connection", "UNAVAILABLE", "DEADLINE_EXCEEDED")
GOOD: InputTuple = ("int32_in", "INT32", [2], [5, -6])


class Fault(Exception):
    """An invalid response."""


class SearchEnded(BaseException):
    """Ends hypothesis's search for a smaller request.

    A BaseException, because hypothesis would treat an Exception as a failure.
    """


@dataclass
class Result:
    """The result of several requests: counts by status, longest duration, and a fault with its request."""

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

    def record_fault(self, fault: str, request: str) -> None:
        """Record the fault if its request is the smallest one so far."""
        if not self.fault or len(request) < len(self.request):
            self.fault, self.request = fault, request


def run_round(kind: str, number: int, count: int, http_port: int, grpc_port: int) -> Result:
    """Send up to `count` requests of `kind`, generated from the seed `number`, followed by two valid requests."""
    result = Result(kind)
    with Clients(http_port, grpc_port) as clients, warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)  # about a large failed request
        try:
            search(result, clients, number, count)
        except (Fault, SearchEnded, Flaky):
            result.fault += f" (kind {kind}, seed {number})"
        if not result.fault and (fault := find_fault(clients)):
            result.record_fault(
                f"{fault} after the requests of kind {kind}, seed {number}", "a good one"
            )
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
        if seconds > RESPONSE_TIMEOUT_SECONDS:
            fault = fault or f"{status} after {seconds:.1f} s"
        if fault:
            result.record_fault(fault, str(request))
            if status in GONE:
                raise SearchEnded
            deadline = min(deadline, time.monotonic() + SHRINK_SECONDS)
            raise Fault(fault)
        if time.monotonic() > deadline:
            raise SearchEnded

    attempt()


def send(request: Any, clients: Clients) -> tuple[str, str]:
    try:
        return request.send(clients)
    except OSError as error:
        return "no connection", f"no connection: {error!r}"


def find_fault(clients: Clients) -> str:
    """Send a valid request over REST and gRPC. Return the fault in the responses, or ""."""
    http = Http(f"http://127.0.0.1:{clients.http_port}")
    try:
        for form in (Rest(http, binary=True, model=NAME), Grpc(clients.channel, model=NAME)):
            response = form.infer([GOOD], ["int32_out"])
            if response.outputs != {"int32_out": GOOD[1:]}:
                return f"a valid request got {response}"
        return ""
    except BROKEN as error:
        return f"a valid request got no response: {error!r}"
    finally:
        http.close()
