"""Run the clients for one protocol in a separate process until stdin ends: python -m dev.chaos.load PLAN

The process prints a line when it starts, and its tally after all responses have arrived.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dev.chaos.clients import CLIENTS, REJECTED, SUCCEEDED, TIMED_OUT, Client, Plan
from tests.kit.processes import Running

ROOT = Path(__file__).resolve().parents[2]
# Pause of a client after a rejection if the plan has no rate.
REST_SECONDS = 0.01


@dataclass
class Tally:
    """Numbers of requests by outcome, for one protocol.

    Times are in seconds. Latencies are those of successful requests.
    `pause` is the longest time without a response. `deadline_error_p99` is the 99th percentile of the
    time until a client received a Deadline exceeded error.
    """

    seconds: float = 0
    succeeded: int = 0
    rejected: int = 0
    timed_out: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    p50: float = 0
    p99: float = 0
    worst: float = 0
    pause: float = 0
    deadline_error_p99: float = 0
    lag: float = 0

    @property
    def sent(self) -> int:
        return self.succeeded + self.rejected + self.timed_out + self.losses

    @property
    def losses(self) -> int:
        return sum(self.lost.values())

    @property
    def rate(self) -> float:
        """Return the rate of responses per second."""
        return self.succeeded / self.seconds if self.seconds else 0


class Clients:
    """All clients of a plan, with their tally."""

    def __init__(self, plan: Plan):
        self.plan, self.stopping = plan, asyncio.Event()
        self.outcomes: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {SUCCEEDED: [], TIMED_OUT: []}
        self.begun = self.last_answer = self.next_offer = time.monotonic()
        self.pause = self.lag = 0.0

    async def run(self) -> Tally:
        clients = [CLIENTS[self.plan.protocol](self.plan) for _ in range(self.plan.clients)]
        await asyncio.gather(*map(self.work, clients))
        seconds = time.monotonic() - self.begun
        succeeded = self.times[SUCCEEDED] or [0.0]
        p50, p99 = np.percentile(succeeded, [50, 99]).tolist()
        deadline_error_p99 = float(np.percentile(self.times[TIMED_OUT] or [0.0], 99))
        good, rejected, late = (
            self.outcomes.pop(outcome, 0) for outcome in (SUCCEEDED, REJECTED, TIMED_OUT)
        )
        return Tally(
            seconds,
            good,
            rejected,
            late,
            dict(self.outcomes),
            p50,
            p99,
            max(succeeded),
            self.pause,
            deadline_error_p99,
            self.lag,
        )

    async def work(self, client: Client) -> None:
        """Send requests from one client."""
        while not self.stopping.is_set():
            if self.plan.rate:
                await self.wait_until_due()
            begun = time.monotonic()
            outcome = await client.send_request()
            self.count(outcome, begun)
            if outcome == REJECTED and not self.plan.rate:
                await asyncio.sleep(REST_SECONDS)
        await client.close()

    async def wait_until_due(self) -> None:
        self.next_offer += 1 / self.plan.rate
        due = max(self.next_offer, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
        self.lag = max(self.lag, time.monotonic() - due)

    def count(self, outcome: str, begun: float) -> None:
        now = time.monotonic()
        self.outcomes[outcome] += 1
        if outcome in self.times:
            self.times[outcome].append(now - begun)
        if outcome == SUCCEEDED:
            self.pause = max(self.pause, now - self.last_answer)
            self.last_answer = now


@contextmanager
def load(services: Sequence[Running], **plan: Any) -> Iterator[dict[str, Tally]]:
    """Run load over both protocols for the duration of the block. Then fill in the tallies by protocol.

    `plan` contains fields of Plan.
    """
    tallies: dict[str, Tally] = {}
    with ExitStack() as stack:
        processes = {}
        for protocol in CLIENTS:
            addresses = [
                service.http_address if protocol == "rest" else service.grpc_address
                for service in services
            ]
            command = [
                sys.executable,
                "-m",
                "dev.chaos.load",
                json.dumps(asdict(Plan(protocol, addresses, **plan))),
            ]
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            processes[protocol] = stack.enter_context(process)
        for process in processes.values():
            assert process.stdout is not None
            process.stdout.readline()
        yield tallies
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for protocol, process in processes.items():
            assert process.stdout is not None
            tallies[protocol] = Tally(**json.loads(process.stdout.read()))


async def main(plan: Plan) -> Tally:
    clients = Clients(plan)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), clients.stopping.set)
    sys.stdout.write("\n")
    sys.stdout.flush()
    return await clients.run()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(asyncio.run(main(Plan(**json.loads(sys.argv[1])))))))
