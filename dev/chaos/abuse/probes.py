"""Probes as those of Kubernetes, in a process of its own: python -m dev.chaos.abuse.probes PLAN

The process sends probes until stdin ends, and then prints its ProbeTally.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dev.chaos.abuse.limits import LIVENESS_SECONDS, READINESS_SECONDS
from dev.chaos.load import ROOT
from tests.kit.processes import Running

# Kubernetes sends a probe every 5 or 10 s. More probes find more failures.
INTERVAL_SECONDS = 0.5


@dataclass(frozen=True)
class ProbePlan:
    """The ports of the service. Over TLS, the probes accept each certificate, as in Kubernetes."""

    http_port: int
    grpc_port: int
    is_tls: bool = False


@dataclass
class ProbeTally:
    """The number of probes, the longest time in seconds, and the failures."""

    probes: int = 0
    slowest: float = 0
    failures: list[str] = field(default_factory=list)


class Prober:
    """Sends one kind of probe, in a thread.

    probe: returns the problem, or "" if the probe succeeded. It takes the timeout in seconds.
    """

    def __init__(self, name: str, probe: Callable[[float], str], timeout: float):
        self.tally = ProbeTally()
        self._name = name
        self._probe = probe
        self._timeout = timeout
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(INTERVAL_SECONDS):
            start = time.monotonic()
            problem = self._probe(self._timeout)
            seconds = time.monotonic() - start
            if seconds > self._timeout and not problem:
                problem = "too slow"
            self.tally.probes += 1
            self.tally.slowest = max(self.tally.slowest, seconds)
            if problem:
                self.tally.failures.append(f"{self._name} after {seconds:.1f} s: {problem}")


class HttpProbe:
    """GET of a path over a new connection."""

    def __init__(self, plan: ProbePlan, path: str):
        self._plan = plan
        self._path = path

    def __call__(self, timeout: float) -> str:
        with closing(self._connection(timeout)) as connection:
            try:
                connection.request("GET", self._path)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                return repr(error)
        return "" if status == 200 else f"status {status}"

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        port = self._plan.http_port
        if not self._plan.is_tls:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)


class GrpcProbe:
    """A call of the health service over a new connection."""

    def __init__(self, plan: ProbePlan):
        self._address = f"127.0.0.1:{plan.grpc_port}"

    def __call__(self, timeout: float) -> str:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(self._address, options) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            request = health_pb2.HealthCheckRequest()
            try:
                response = check(request, timeout=timeout, wait_for_ready=True)
            except grpc.RpcError as error:
                return f"{error.code().name}: {error.details()}"
        if response.status == health_pb2.HealthCheckResponse.SERVING:
            return ""
        return f"status {response.status}"


@contextmanager
def probing(service: Running, *, is_tls: bool = False) -> Iterator[ProbeTally]:
    """Send probes for the duration of the block. Then fill in the tally."""
    plan = ProbePlan(service.http_port, service.grpc_port, is_tls=is_tls)
    command = [sys.executable, "-m", "dev.chaos.abuse.probes", json.dumps(asdict(plan))]
    tally = ProbeTally()
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # it has started
        yield tally
        process.stdin.close()
        result = ProbeTally(**json.loads(process.stdout.read()))
    tally.probes = result.probes
    tally.slowest = result.slowest
    tally.failures = result.failures


def main(plan: ProbePlan) -> ProbeTally:
    """Send probes until stdin ends."""
    probers = [
        Prober("readiness", HttpProbe(plan, "/v2/health/ready"), READINESS_SECONDS),
        Prober("liveness", HttpProbe(plan, "/v2/health/live"), LIVENESS_SECONDS),
    ]
    if not plan.is_tls:  # Kubernetes has no gRPC probes over TLS
        probers.append(Prober("gRPC readiness", GrpcProbe(plan), READINESS_SECONDS))
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stdin.read()

    total = ProbeTally()
    for prober in probers:
        prober.stop()
        total.probes += prober.tally.probes
        total.slowest = max(total.slowest, prober.tally.slowest)
        total.failures += prober.tally.failures
    return total


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(main(ProbePlan(**json.loads(sys.argv[1]))))))
