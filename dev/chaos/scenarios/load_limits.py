"""Overload at ten times the capacity, with and without deadlines."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from dev.chaos.load import Tally, load
from dev.chaos.report import Outcome
from dev.chaos.scenarios.base import Options, scenario
from dev.chaos.service import memory, serving

# One worker, because the clients use the same CPU cores. The model sleeps.
SLOTS, QUEUE, MODEL_SECONDS = 4, 64, 0.02
SETTINGS = {"MAX_CONCURRENCY": SLOTS, "MAX_QUEUE_SIZE": QUEUE, "CHAOS_SECONDS": MODEL_SECONDS}
TIMES = 10
CLIENTS = 128  # per protocol, more than the slots and the queue hold
LEAST_GOODPUT = 0.9
# Maximum wait, as a multiple of the time for a full queue. Scheduling is not fair to all clients.
MOST_WAIT = 2
MOST_GROWTH_MIB = 4
# Lower, so that the CPU is not saturated. A busy service reads requests late, and cannot reject them before.
TIMES_WITH_DEADLINES = 5
TIMEOUT = 0.1
# Maximum time (p99) from client to model, in addition to the scheduling delay of the clients.
TRANSIT_SECONDS = 0.05


@scenario(f"{TIMES} times the capacity")
def overload(options: Options) -> Outcome:
    """Run half of the load over each protocol. The service rejects requests while the model runs."""
    outcome = Outcome()
    with serving(1, **SETTINGS) as service:
        with load([service], clients=SLOTS // 2) as alone:
            time.sleep(options.seconds / 3)
        capacity = total_rate(alone)
        with load([service], clients=CLIENTS, rate=TIMES * capacity / 2) as outcome.tallies:
            time.sleep(options.seconds / 3)
            early = memory(service)
            time.sleep(options.seconds)
            late = memory(service)
    goodput = total_rate(outcome.tallies) / capacity
    offered = sum(tally.sent / tally.seconds for tally in outcome.tallies.values()) / capacity
    bound = MOST_WAIT * (QUEUE + SLOTS) / capacity + most_lag(outcome.tallies)
    p99 = max(tally.p99 for tally in outcome.tallies.values())
    outcome.figures = {
        "capacity, responses/s": round(capacity),
        "requests sent, times the capacity": f"{offered:.1f}",
        "requests that succeeded, times the capacity": f"{goodput:.2f}",
        "memory of the worker, MiB": f"{early:.0f} → {late:.0f}",
    }
    outcome.check_losses()
    outcome.check(goodput >= LEAST_GOODPUT, f"goodput is {goodput:.2f} of the capacity")
    outcome.check(
        late <= early + MOST_GROWTH_MIB, f"the worker grew from {early:.1f} to {late:.1f} MiB"
    )
    outcome.check(p99 <= bound, f"99th percentile of {p99:.2f} s, where {bound:.2f} s are due")
    return outcome


@scenario(f"{TIMES_WITH_DEADLINES} times the capacity, deadlines of {TIMEOUT * 1000:.0f} ms")
def deadlines(options: Options) -> Outcome:
    """Send requests that contain their deadline. The model records the time from the deadline to its start."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        with serving(1, **SETTINGS, CHAOS_NOTES=notes) as service:
            rate = TIMES_WITH_DEADLINES * SLOTS / MODEL_SECONDS
            with load(
                [service], clients=CLIENTS, rate=rate / 2, timeout=TIMEOUT
            ) as outcome.tallies:
                time.sleep(options.seconds)
        late = [float(line) for line in notes.read_text().split()]
    lag, p99 = most_lag(outcome.tallies), float(np.percentile(late, 99))
    deadline_error_p99 = max(tally.deadline_error_p99 for tally in outcome.tallies.values())
    outcome.figures = {
        "calls of predict()": f"{len(late):,}",
        "delay from the deadline to the start of predict(), p99, ms": f"{max(0, p99) * 1000:.0f}",
        "delay from the deadline to the start of predict(), maximum, ms": f"{max(0, *late) * 1000:.0f}",
        "scheduling delay of the clients, maximum, ms": f"{lag * 1000:.0f}",
        "response time of deadline errors, p99, ms": f"{deadline_error_p99 * 1000:.0f}",
    }
    outcome.check_losses()
    outcome.check(
        p99 < TRANSIT_SECONDS + lag, f"requests were begun {p99:.3f} s after their deadlines"
    )
    succeeded = sum(tally.succeeded for tally in outcome.tallies.values())
    outcome.check(
        succeeded >= LEAST_GOODPUT * len(late), f"{len(late)} were run, and {succeeded} succeeded"
    )
    outcome.check(
        sum(tally.timed_out for tally in outcome.tallies.values()) > 0, "no deadline passed"
    )
    return outcome


def total_rate(tallies: dict[str, Tally]) -> float:
    return sum(tally.rate for tally in tallies.values())


def most_lag(tallies: dict[str, Tally]) -> float:
    return max(tally.lag for tally in tallies.values())
