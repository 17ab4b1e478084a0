"""What the service tells of itself to Prometheus: the metrics, and how they follow from calls and from the data plane.

The names, labels and units are those of docs/monitoring.md.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.call import INFER, Call
from app.dataplane import DataPlane
from app.errors import Abandoned, InferenceError, NotReady, Overloaded, TimedOut

REASONS: dict[type[InferenceError] | None, str] = {
    Overloaded: "overloaded",
    TimedOut: "timed_out",
    Abandoned: "abandoned",
    NotReady: "not_ready",
}
SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
BYTES = tuple(float(4**power) for power in range(4, 15))  # 256 bytes to 256 MiB
ROWS = tuple(float(2**power) for power in range(11))
# The gauges are as old as this, at most.
INTERVAL_SECONDS = 0.2


class Distribution:
    """A histogram that takes many values at once, for which prometheus_client has no door of its own."""

    def __init__(self, histogram: Histogram, bounds: Sequence[float]):
        self.histogram, self.bounds = histogram, bounds
        self.children: dict[tuple[str, ...], Any] = {}

    def add(self, labels: tuple[str, ...], values: list[Any]) -> None:
        """As histogram.labels(*labels).observe() for each of `values`."""
        child: Any = self.children.get(labels)
        if child is None:
            child = self.children[labels] = self.histogram.labels(*labels) if labels else self.histogram
        for place, count in Tally(map(bisect_left, repeat(self.bounds), values)).items():
            child._buckets[place].inc(count)
        child._sum.inc(sum(values))


class Metrics:
    """The metrics of one process of the service, on a registry of its own; `observe` is for the journal."""

    def __init__(self, plane: DataPlane):
        self.plane = plane
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        method, stage = ("protocol", "method"), ("protocol", "stage")
        self.requests = counter("inference_requests", "Requests that were answered.", (*method, "status"))
        self.rejected = counter("inference_rejected", "Requests that never reached the model.", ("protocol", "reason"))
        self.seconds = self.distribution("inference_request_seconds", "Time of a request in all.", method, SECONDS)
        self.stages = self.distribution("inference_stage_seconds", "Time of a ModelInfer's stage.", stage, SECONDS)
        self.received = self.distribution("inference_request_bytes", "Size of a ModelInfer's body.", method[:1], BYTES)
        self.sent = self.distribution("inference_response_bytes", "Size of the answer to one.", method[:1], BYTES)
        self.rows = self.distribution("inference_batch_rows", "Rows that predict() was called with.", (), ROWS)
        self.starts = counter("inference_worker_starts", "Workers that were started.")
        self.workers = gauge("inference_workers", "Workers there are.", multiprocess_mode="livesum")
        self.workers_ready = gauge("inference_workers_ready", "Workers that are ready.", multiprocess_mode="livesum")
        self.inside = gauge(
            "inference_requests_in_flight", "ModelInfer that run, or wait for it.", multiprocess_mode="livesum"
        )
        self.ready = gauge("inference_model_ready", "Whether a worker is ready.", multiprocess_mode="livemax")
        self.load_seconds = gauge(
            "inference_model_load_seconds", "Time that load() took, where longest.", multiprocess_mode="livemax"
        )
        self.info = gauge(
            "inference_model_info", "The model; always 1.", ("name", "version", "platform"), multiprocess_mode="livemax"
        )
        self.published: tuple[int, bool, float] | None = None
        self._publishing = threading.Lock()

    def distribution(self, name: str, text: str, labels: tuple[str, ...], bounds: Sequence[float]) -> Distribution:
        return Distribution(Histogram(name, text, labels, buckets=bounds, registry=self.registry), bounds)

    def observe(self, calls: Iterable[Call]) -> None:
        """Counts calls that have ended."""
        groups: dict[tuple[str, str, str], list[Call]] = {}
        for call in calls:
            groups.setdefault((call.protocol, call.method, call.status), []).append(call)
        for labels, group in groups.items():
            protocol, method, _ = labels
            self.requests.labels(*labels).inc(len(group))
            self.seconds.add((protocol, method), [call.ended - call.begun for call in group])
            if method == INFER:
                self.observe_inferences(protocol, group)

    def observe_inferences(self, protocol: str, calls: list[Call]) -> None:
        """What only a ModelInfer has; a stage is told of those that came to its end."""
        for stage, values in (
            ("decode", [call.decoded - call.begun for call in calls if call.decoded]),
            ("queue", [call.started - call.decoded for call in calls if call.started]),
            ("predict", [call.predicted - call.started for call in calls if call.predicted]),
            ("encode", [call.ended - call.predicted for call in calls if call.predicted and not call.error]),
        ):
            if values:
                self.stages.add((protocol, stage), values)
        if sizes := [call.received for call in calls if call.received]:
            self.received.add((protocol,), sizes)
        if sizes := [call.sent for call in calls if not call.error]:
            self.sent.add((protocol,), sizes)
        if rows := [call.rows for call in calls if call.leads]:
            self.rows.add((), rows)
        if failures := [call.failure for call in calls if call.failure in REASONS]:
            for failure, count in Tally(failures).items():
                self.rejected.labels(protocol, REASONS[failure]).inc(count)

    def publish(self) -> None:
        """Sets the gauges to what is so now."""
        plane = self.plane
        with self._publishing:
            now = plane.admission.inside, plane.ready, plane.load_seconds
            if now == self.published:
                return
            if self.published is None:
                served = plane.metadata()
                self.info.labels(served.name, served.version, served.platform).set(1)
                self.workers.set(1)
            self.published = now
            self.inside.set(now[0])
            self.ready.set(now[1])
            self.workers_ready.set(now[1])
            self.load_seconds.set(now[2])

    def start(self) -> None:
        """Counts this process as a worker, and publishes for it from now on: another may be asked for the metrics."""
        self.starts.inc()
        self.publish()
        threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_SECONDS)
            self.publish()
