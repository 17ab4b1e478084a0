"""Simulation of a service whose replicas are scaled automatically."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np

# Defaults of Kubernetes' HorizontalPodAutoscaler.
SYNC_SECONDS, TOLERANCE, DOWN_SECONDS = 15, 0.1, 300
# Interval of metrics-server, and window for the mean utilization of a pod.
RESOLUTION_SECONDS, WINDOW_SECONDS = 15, 30
# Time from a sync to the next reading of metrics, which are never current.
OFFSET_SECONDS = 10


def option(default: float, doc: str, least: float = 0) -> Any:
    return field(default=default, metadata={"doc": doc, "least": least})


@dataclass(frozen=True)
class Setup:
    """The parameters of the simulation. Each field is a command-line option."""

    base: float = option(10.0, "Requests per second between bursts.")
    burst: float = option(80.0, "Requests per second in a burst.")
    cpu: float = option(0.1, "CPU seconds per request of the model that computes.", 0.001)
    wait: float = option(0.395, "Seconds that a request of the waiting model waits.", 0.001)
    wait_cpu: float = option(0.005, "CPU seconds per request of the waiting model.")
    cores: float = option(1.0, "CPU cores of a replica, as request and limit.", 0.001)
    concurrency: int = option(4, "Running requests per replica, as with MAX_CONCURRENCY.", 1)
    queue: int = option(64, "Queued requests per replica, as with MAX_QUEUE_SIZE.")
    startup: int = option(30, "Seconds until a new replica is ready.")
    low: int = option(2, "Minimum number of replicas.", 1)
    high: int = option(20, "Maximum number of replicas.", 1)
    cpu_target: float = option(0.75, "Target CPU utilization of a replica.", 0.001)
    in_flight_target: float = option(3.0, "Target number of requests in flight per replica.", 0.001)
    scrape: int = option(30, "Seconds between scrapes of requests in flight.", 1)
    seed: int = option(1, "Seed of the random arrival times.")

    def profile(self) -> list[tuple[float, float]]:
        """Return points (second, requests per second) to interpolate linearly: a sudden burst, then a gradual one."""
        low, high = self.base, self.burst
        minutes = [
            (0, low),
            (5, low),
            (5, high),
            (11, high),
            (11, low),
            (20, low),
            (30, high),
            (34, high),
            (40, low),
        ]
        return [(60 * minute, rate) for minute, rate in minutes]

    def arrivals(self) -> np.ndarray:
        """Return random arrival times that follow the profile."""
        times, rates = np.array(self.profile(), float).T
        seconds = np.arange(times[-1] + 1)
        expected = np.concatenate([[0], np.cumsum(np.interp(seconds[:-1] + 0.5, times, rates))])
        chance = np.random.default_rng(self.seed)
        count = chance.poisson(expected[-1])
        return np.interp(np.sort(chance.uniform(0, expected[-1], count)), expected, seconds)


@dataclass(frozen=True)
class Model:
    """A model whose requests need `cpu` seconds of CPU time and wait for `wait` seconds."""

    cpu: float
    wait: float

    @property
    def seconds(self) -> float:
        return self.cpu + self.wait

    def pace(self, running: int, cores: float) -> float:
        """Return the relative speed of `running` concurrent requests that share `cores`."""
        return (
            min(1.0, cores * self.seconds / (running * self.cpu)) if running and self.cpu else 1.0
        )


class Replica:
    """A replica with running and queued requests. `progress` is the work completed by a request since the start."""

    def __init__(self, setup: Setup, model: Model, ready_at: float):
        self.setup, self.model, self.ready_at = setup, model, ready_at
        self.running: list[
            tuple[float, float]
        ] = []  # a heap of (progress at the end, arrival time)
        self.waiting: deque[float] = deque()
        self.progress = self.cpu_seconds = 0.0
        self.now, self.expected = ready_at, 0
        self.usage: deque[tuple[float, float]] = deque([(ready_at, 0.0)])

    @property
    def inside(self) -> int:
        return len(self.running) + len(self.waiting)

    def advance(self, now: float) -> None:
        if self.running:
            done = (now - self.now) * self.model.pace(len(self.running), self.setup.cores)
            self.progress += done
            self.cpu_seconds += done * len(self.running) * self.model.cpu / self.model.seconds
        self.now = now

    def begin(self, came: float) -> None:
        heapq.heappush(self.running, (self.progress + self.model.seconds, came))

    def take(self, now: float) -> bool:
        """Accept a request and return True, or return False if the queue is full."""
        self.advance(now)
        if len(self.running) < self.setup.concurrency:
            self.begin(now)
        elif len(self.waiting) < self.setup.queue:
            self.waiting.append(now)
        else:
            return False
        return True

    def next_end(self) -> float:
        """Return the time when the next request completes, unless another request arrives before."""
        if not self.running:
            return inf
        pace = self.model.pace(len(self.running), self.setup.cores)
        return self.now + max(0.0, self.running[0][0] - self.progress) / pace

    def end(self, now: float) -> float:
        """Complete a request and start the next queued one. Return the arrival time of the completed request."""
        self.advance(now)
        _, came = heapq.heappop(self.running)
        if self.waiting:
            self.begin(self.waiting.popleft())
        return came

    def utilization(self, now: float) -> float | None:
        """Return the mean utilization in the last window, as metrics-server does, or None before the first window."""
        self.advance(max(now, self.ready_at))
        self.usage.append((self.now, self.cpu_seconds))
        while len(self.usage) > 1 and self.usage[1][0] <= now - WINDOW_SECONDS:
            self.usage.popleft()
        since, before = self.usage[0]
        if now - since < WINDOW_SECONDS:
            return None
        return (self.cpu_seconds - before) / (now - since) / self.setup.cores


def by_utilization(current: int, target: float, measured: list[float | None]) -> int:
    """Return the number of replicas for the measured utilization.

    Replicas without a measurement are ignored, but count as idle when scaling up.
    """
    known = [each for each in measured if each is not None]
    if not known:
        return current
    unknown = len(measured) - len(known)
    ratio = sum(known) / len(known) / target
    if ratio > 1 and unknown:
        ratio = sum(known) / len(measured) / target
        return current if ratio <= 1 + TOLERANCE else max(current, whole(ratio * len(measured)))
    return current if abs(ratio - 1) <= TOLERANCE else whole(ratio * len(known))


def by_sum(current: int, target: float, total: float) -> int:
    """Return the number of replicas for the sum of a metric."""
    return current if abs(total / (target * current) - 1) <= TOLERANCE else whole(total / target)


def whole(replicas: float) -> int:
    return ceil(round(replicas, 9))


class Autoscaler:
    """Scales up by four or to twice as many per sync, and down to the maximum of the last five minutes."""

    def __init__(self, low: int, high: int):
        self.low, self.high = low, high
        self.said: deque[tuple[float, int]] = deque()

    def decide(self, now: float, current: int, wanted: int) -> int:
        self.said.append((now, wanted))
        while self.said[0][0] <= now - DOWN_SECONDS:
            self.said.popleft()
        most = max(each for _, each in self.said)
        replicas = min(max(current, wanted), most)
        return max(self.low, min(replicas, self.high, max(2 * current, current + 4)))


@dataclass
class Outcome:
    """The result of a run. A row of `seconds` contains time, replicas, ready replicas and rejections so far."""

    offered: int = 0
    rejected: int = 0
    inside: int = 0
    latencies: list[float] = field(default_factory=list)
    seconds: list[tuple[float, int, int, int]] = field(default_factory=list)

    @property
    def succeeded(self) -> int:
        return len(self.latencies)

    def late(self) -> int:
        """Return the number of responses that took more than one second."""
        return sum(each > 1 for each in self.latencies)

    def replica_minutes(self) -> float:
        return sum(row[1] for row in self.seconds) / 60

    def peak(self) -> int:
        return max(row[1] for row in self.seconds)


class Simulation:
    """A service that is scaled by a signal of SIGNALS, or has a fixed number of replicas if `signal` is None."""

    def __init__(self, setup: Setup, model: Model, signal: str | None):
        self.setup, self.model, self.signal = setup, model, signal
        self.chance = np.random.default_rng(setup.seed + 1)
        self.replicas = [Replica(setup, model, 0) for _ in range(setup.low)]
        self.ready, self.every = list(self.replicas), list(self.replicas)
        self.ends: list[
            tuple[float, int, Replica]
        ] = []  # a heap, which may contain outdated entries
        self.order = 0
        self.autoscaler = Autoscaler(setup.low, setup.high)
        self.measured: list[float | None] = []
        self.in_flight = 0.0
        self.outcome = Outcome()

    def run(self) -> Outcome:
        arrivals, end = self.setup.arrivals(), int(self.setup.profile()[-1][0])
        picks = self.chance.random(len(arrivals))
        index = 0
        for second in range(end):
            self.tick(second)
            while index < len(arrivals) and arrivals[index] < second + 1:
                self.arrive(float(arrivals[index]), picks[index])
                index += 1
            self.finish(second + 1)
        self.outcome.inside = sum(each.inside for each in self.every)
        return self.outcome

    def arrive(self, now: float, pick: float) -> None:
        """Send a request to a random ready replica."""
        self.finish(now)
        replica = self.ready[int(pick * len(self.ready))]
        self.outcome.offered += 1
        if replica.take(now):
            self.expect(replica)
        else:
            self.outcome.rejected += 1

    def expect(self, replica: Replica) -> None:
        self.order += 1
        replica.expected = self.order
        heapq.heappush(self.ends, (replica.next_end(), self.order, replica))

    def finish(self, now: float) -> None:
        """Complete the requests that end by `now`."""
        while self.ends and self.ends[0][0] <= now:
            at, order, replica = heapq.heappop(self.ends)
            if order == replica.expected and replica.running:
                self.outcome.latencies.append(at - replica.end(at))
                self.expect(replica)

    def tick(self, now: int) -> None:
        """Simulate the events of a second: replicas become ready, metrics are read and the autoscaler decides."""
        setup = self.setup
        if now % RESOLUTION_SECONDS == OFFSET_SECONDS:
            self.measured = [each.utilization(now) for each in self.replicas]
        if now % setup.scrape == OFFSET_SECONDS % setup.scrape:
            self.in_flight = sum(each.inside for each in self.ready)
        if now % SYNC_SECONDS == 0 and now and self.signal:
            self.scale(now, self.signal)
        self.ready = [each for each in self.replicas if each.ready_at <= now]
        self.outcome.seconds.append(
            (now, len(self.replicas), len(self.ready), self.outcome.rejected)
        )

    def scale(self, now: int, signal: str) -> None:
        current = len(self.replicas)
        unknown = [None] * (current - len(self.measured))
        wanted = {
            "CPU": by_utilization(current, self.setup.cpu_target, [*self.measured, *unknown]),
            "in flight": by_sum(current, self.setup.in_flight_target, self.in_flight),
        }
        wanted["both"] = max(wanted.values())
        replicas = self.autoscaler.decide(now, current, wanted[signal])
        del (
            self.replicas[replicas:],
            self.measured[replicas:],
        )  # the newest replicas, which complete their requests
        new = [
            Replica(self.setup, self.model, now + self.setup.startup)
            for _ in range(current, replicas)
        ]
        self.replicas += new
        self.every += new
