"""Prometheus metrics (docs/monitoring.md) of completed requests and of the data plane."""

from collections import defaultdict
from functools import partial
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

from app.inference.data_plane import DataPlane
from app.inference.request_context import INFER, STAGES, RequestContext
from app.observability.metric_files import files_to_merge, metrics_directory, observe_all
from app.observability.statistics import Statistics
from app.protocol.errors import (
    ClientDisconnected,
    DeadlineExceeded,
    Overloaded,
    PredictTimeout,
    Unavailable,
)

REASONS = {Overloaded: "overloaded", DeadlineExceeded: "deadline_exceeded"}
REASONS |= {ClientDisconnected: "client_disconnected", Unavailable: "unavailable"}
SECONDS = (
    1e-4,
    2.5e-4,
    5e-4,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
)
BYTES = tuple(float(4**power) for power in range(4, 15))  # 256 bytes to 256 MiB
ROWS = tuple(float(2**power) for power in range(11))


class Metrics:
    """Metrics and statistics of a process. observe() is an observer of the queue. `use_internals`: see observe_all."""

    def __init__(self, plane: DataPlane, use_internals: bool = True):
        self.plane, self.statistics = plane, Statistics(plane)
        self.observe_all = partial(observe_all, use_internals=use_internals)
        self.own = CollectorRegistry()
        self.model = plane.metadata()
        counter, histogram = (
            partial(Counter, registry=self.own),
            partial(Histogram, registry=self.own),
        )
        most, total = (
            partial(Gauge, registry=self.own, multiprocess_mode=mode)
            for mode in ("livemax", "livesum")
        )
        times, sizes = partial(histogram, buckets=SECONDS), partial(histogram, buckets=BYTES)
        protocol = ("model", "version", "protocol")
        operation, stage, reason = (
            (*protocol, label) for label in ("operation", "stage", "reason")
        )
        self.requests = counter(
            "inference_requests", "Number of requests that have ended.", (*operation, "code")
        )
        self.rejected = counter(
            "inference_requests_rejected", "Number of rejected inference requests.", reason
        )
        self.duration = times(
            "inference_request_duration_seconds", "Duration of requests in seconds.", operation
        )
        self.stages = times(
            "inference_request_stage_duration_seconds",
            "Duration of request stages in seconds.",
            stage,
        )
        self.received = sizes(
            "inference_request_size_bytes", "Size of inference requests in bytes.", protocol
        )
        self.sent = sizes(
            "inference_response_size_bytes", "Size of inference responses in bytes.", protocol
        )
        self.rows = histogram(
            "inference_batch_size", "Number of rows in a batch of inference requests.", buckets=ROWS
        )
        self.stuck = counter(
            "inference_predict_timeouts",
            "Number of calls of predict() that exceeded the time limit.",
        )
        self.starts = counter(
            "inference_worker_starts", "Number of worker processes that were started."
        )
        self.workers = total("inference_workers", "Number of worker processes.")
        self.workers_ready = total(
            "inference_workers_ready", "Number of worker processes that are ready."
        )
        self.in_flight = total(
            "inference_requests_in_flight", "Number of inference requests running or queued."
        )
        self.queued = total(
            "inference_requests_queued", "Number of inference requests that are queued."
        )
        self.ready = most("inference_model_ready", "1 if a worker is ready to serve the model.")
        self.load_seconds = most(
            "inference_model_load_duration_seconds", "Longest duration of load() in seconds."
        )
        self.info = most(
            "inference_model_info", "Served model. Always 1.", ("name", "version", "platform")
        )
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def collect(self) -> Any:
        """Return the metrics of all workers, including those of predict.py. prometheus_client calls this."""
        if place := metrics_directory():
            return MultiProcessCollector.merge(files_to_merge(place))
        return *self.own.collect(), *REGISTRY.collect()

    def start(self) -> None:
        """Count this process as a worker."""
        self.statistics.start()
        self.starts.inc()
        self.workers.set(1)
        self.info.labels(self.model.name, self.model.version, self.model.platform).set(1)

    def observe(self, contexts: list[RequestContext]) -> None:
        """Count completed requests, and update the gauges."""
        self.statistics.observe(contexts)
        groups = defaultdict(list)
        for context in contexts:
            groups[context.protocol, context.operation, context.status].append(context)
        for (protocol, operation, code), group in groups.items():
            labels = (self.model.name, self.model.version, protocol)
            self.requests.labels(*labels, operation, code).inc(len(group))
            self.observe_all(
                self.duration.labels(*labels, operation),
                [each.ended - each.begun for each in group],
            )
            if operation == INFER:
                self.observe_inferences(labels, group)
        self.in_flight.set(self.plane.admission.in_flight)
        self.queued.set(self.plane.admission.waiting)
        self.ready.set(self.plane.is_ready)
        self.workers_ready.set(self.plane.is_ready)
        self.load_seconds.set(self.plane.load_seconds)

    def observe_inferences(
        self, labels: tuple[str, str, str], contexts: list[RequestContext]
    ) -> None:
        """Record the completed stages, the sizes, the batches and the rejections of infer requests."""
        columns = [*zip(*[context.times for context in contexts], strict=True)]
        for stage, starts, ends in zip(STAGES, columns, columns[1:], strict=False):
            seconds = [
                end - start for start, end in zip(starts, ends, strict=True) if start and end
            ]
            self.observe_all(self.stages.labels(*labels, stage), seconds)
        self.observe_all(
            self.received.labels(*labels),
            [context.received for context in contexts if context.received],
        )
        self.observe_all(
            self.sent.labels(*labels), [context.sent for context in contexts if not context.error]
        )
        self.observe_all(self.rows, [context.batch_rows for context in contexts if context.leads])
        self.stuck.inc(
            sum(
                each.failure is PredictTimeout and (each.leads or not each.batch_rows)
                for each in contexts
            )
        )
        for failure, reason in REASONS.items():
            if count := sum(context.failure is failure for context in contexts):
                self.rejected.labels(*labels, reason).inc(count)
