"""The metrics of docs/monitoring.md, and how they follow from calls and from the data plane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

from app.inference.context import INFER, STAGES, Call
from app.inference.data_plane import DataPlane
from app.observability.metric_files import files_to_merge, folder, observe_all
from app.protocol.errors import ClientDisconnected, DeadlineExceeded, Overloaded, Unavailable

REASONS = {Overloaded: "overloaded", Unavailable: "not_ready"}
REASONS |= {DeadlineExceeded: "timed_out", ClientDisconnected: "abandoned"}
SECONDS = (1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
BYTES = tuple(float(4**power) for power in range(4, 15))  # 256 bytes to 256 MiB
ROWS = tuple(float(2**power) for power in range(11))


class Metrics:
    """The metrics of one process. `observe` is an observer of the journal. `use_internals`: see observe_all()."""

    def __init__(self, plane: DataPlane, use_internals: bool = True):
        self.plane = plane
        self.observe_all = partial(observe_all, use_internals=use_internals)
        self.own = CollectorRegistry()
        counter, histogram = partial(Counter, registry=self.own), partial(Histogram, registry=self.own)
        most, total = (partial(Gauge, registry=self.own, multiprocess_mode=mode) for mode in ("livemax", "livesum"))
        method, stage, protocol = ("protocol", "method"), ("protocol", "stage"), ("protocol",)
        self.requests = counter("inference_requests", "Number of requests.", (*method, "status"))
        self.rejected = counter("inference_rejected", "Number of requests rejected.", ("protocol", "reason"))
        self.seconds = histogram("inference_request_seconds", "Duration of requests.", method, buckets=SECONDS)
        self.stages = histogram("inference_stage_seconds", "Duration of a request's stages.", stage, buckets=SECONDS)
        self.received = histogram("inference_request_bytes", "Size of inference requests.", protocol, buckets=BYTES)
        self.sent = histogram("inference_response_bytes", "Size of inference responses.", protocol, buckets=BYTES)
        self.rows = histogram("inference_batch_rows", "Number of rows in a batch.", buckets=ROWS)
        self.starts = counter("inference_worker_starts", "Number of worker processes started.")
        self.workers = total("inference_workers", "Number of worker processes.")
        self.workers_ready = total("inference_workers_ready", "Number of worker processes that are ready.")
        self.in_flight = total("inference_requests_in_flight", "Number of inference requests running or queued.")
        self.ready = most("inference_model_ready", "1 if a worker is ready.")
        self.load_seconds = most("inference_model_load_seconds", "Duration of the longest load() of a worker.")
        self.info = most("inference_model_info", "1 for the model served.", ("name", "version", "platform"))
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def collect(self) -> Iterator[Any]:
        """Return the metrics of all workers, and of predict.py. prometheus_client calls this."""
        if place := folder():
            yield from MultiProcessCollector.merge(files_to_merge(place))
        else:
            yield from (*self.own.collect(), *REGISTRY.collect())

    def start(self) -> None:
        """Count this process as a worker."""
        self.starts.inc()
        self.workers.set(1)
        model = self.plane.metadata()
        self.info.labels(model.name, model.version, model.platform).set(1)

    def observe(self, calls: list[Call]) -> None:
        """Count calls that have ended, and update the gauges."""
        groups = defaultdict(list)
        for call in calls:
            groups[call.protocol, call.method, call.status].append(call)
        for (protocol, method, status), group in groups.items():
            self.requests.labels(protocol, method, status).inc(len(group))
            self.observe_all(self.seconds.labels(protocol, method), [call.ended - call.begun for call in group])
            if method == INFER:
                self.observe_inferences(protocol, group)
        self.in_flight.set(self.plane.admission.inside)
        self.ready.set(self.plane.ready)
        self.workers_ready.set(self.plane.ready)
        self.load_seconds.set(self.plane.load_seconds)

    def observe_inferences(self, protocol: str, calls: list[Call]) -> None:
        """Count the stages, sizes, batches and rejections of inferences. Only completed stages count."""
        columns = [*zip(*[call.times for call in calls], strict=True)]
        for stage, starts, ends in zip(STAGES, columns, columns[1:], strict=False):
            seconds = [end - start for start, end in zip(starts, ends, strict=True) if start and end]
            self.observe_all(self.stages.labels(protocol, stage), seconds)
        self.observe_all(self.received.labels(protocol), [call.received for call in calls if call.received])
        self.observe_all(self.sent.labels(protocol), [call.sent for call in calls if not call.error])
        self.observe_all(self.rows, [call.rows for call in calls if call.leads])
        for failure, reason in REASONS.items():
            if count := sum(call.failure is failure for call in calls):
                self.rejected.labels(protocol, reason).inc(count)
