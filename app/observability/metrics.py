"""Prometheus metrics (docs/monitoring.md) of completed calls, of the model and of the scheduler."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

from app.inference.call import INFER, STAGES, Call
from app.inference.model_runner import ModelRunner
from app.inference.scheduler import Scheduler
from app.observability.metric_files import files_to_merge, metrics_directory, observe_all
from app.observability.observer_queue import ObserverQueue
from app.observability.shared_read import ReaderLimit, SharedRead
from app.protocol.errors import (
    ClientDisconnected,
    DeadlineExceeded,
    Overloaded,
    PredictTimeout,
    Unavailable,
)
from app.protocol.metadata import ModelMetadata

# Values of the label `reason`, by the class of the error.
REASONS = {
    Overloaded: "overloaded",
    DeadlineExceeded: "deadline_exceeded",
    ClientDisconnected: "client_disconnected",
    Unavailable: "unavailable",
}
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


class Snapshot(NamedTuple):
    """The metrics of all workers at one time, in the form of a registry for prometheus_client."""

    families: list[Any]

    def collect(self) -> list[Any]:
        return self.families


class Metrics:
    """Metrics of a process. observe() is an observer of the queue.

    The metrics are attributes of prometheus_client's types, which add the suffix `_total`.
    `use_internals` is explained in observe_all().
    """

    def __init__(
        self,
        metadata: ModelMetadata,
        model: ModelRunner,
        scheduler: Scheduler,
        observer_queue: ObserverQueue,
        reader_limit: ReaderLimit,
        *,
        use_internals: bool = True,
    ):
        self.metadata = metadata
        self.model = model
        self.scheduler = scheduler
        self._observer_queue = observer_queue
        self._shared_read = SharedRead(self._read, reader_limit)
        self.observe_all = partial(observe_all, use_internals=use_internals)
        # The metrics of this process, without those of predict.py, which are in REGISTRY.
        self.service_registry = CollectorRegistry()

        counter = partial(Counter, registry=self.service_registry)
        histogram = partial(Histogram, registry=self.service_registry)
        time_histogram = partial(histogram, buckets=SECONDS)
        size_histogram = partial(histogram, buckets=BYTES)
        gauge = partial(Gauge, registry=self.service_registry)
        total = partial(gauge, multiprocess_mode="livesum")  # the sum over all workers
        most = partial(gauge, multiprocess_mode="livemax")  # the highest value of a worker
        protocol = ("model", "version", "protocol")
        operation = (*protocol, "operation")

        self.requests = counter(
            "inference_requests", "Number of requests that have ended.", (*operation, "code")
        )
        self.rejected = counter(
            "inference_requests_rejected",
            "Number of rejected inference requests.",
            (*protocol, "reason"),
        )
        self.duration = time_histogram(
            "inference_request_duration_seconds", "Duration of requests in seconds.", operation
        )
        self.stages = time_histogram(
            "inference_request_stage_duration_seconds",
            "Duration of request stages in seconds.",
            (*protocol, "stage"),
        )
        self.received = size_histogram(
            "inference_request_size_bytes", "Size of inference requests in bytes.", protocol
        )
        self.sent = size_histogram(
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

    def read(self, release_thread: Callable[[], None]) -> Snapshot:
        """Return all metrics of all workers, with the calls that ended before this one.

        Block for 0.1 s, or 0.2 s if another thread reads, after a call of `release_thread`. Raise
        Overloaded if too many threads wait.
        """
        return self._shared_read(release_thread)

    def _read(self) -> Snapshot:
        """Return all metrics of all workers, including those of predict.py.

        Only one thread at a time calls this.
        """
        self._observer_queue.wait_for_workers()
        directory = metrics_directory()
        families: Iterable[Any]
        if directory:
            families = MultiProcessCollector.merge(files_to_merge(directory))
        else:
            families = (*self.service_registry.collect(), *REGISTRY.collect())
        return Snapshot(list(families))

    def start(self) -> None:
        """Count this process as a worker."""
        self.starts.inc()
        self.workers.set(1)
        self.info.labels(self.metadata.name, self.metadata.version, self.metadata.platform).set(1)

    def observe(self, calls: list[Call]) -> None:
        """Count completed calls, and update the gauges."""
        groups = defaultdict(list)
        for call in calls:
            groups[call.protocol, call.operation, call.outcome.status].append(call)
        for (protocol, operation, code), group in groups.items():
            labels = (self.metadata.name, self.metadata.version, protocol)
            self.requests.labels(*labels, operation, code).inc(len(group))
            durations = [call.timings.total_seconds for call in group]
            self.observe_all(self.duration.labels(*labels, operation), durations)
            if operation == INFER:
                self._observe_inferences(labels, group)
        self._update_gauges()

    def _update_gauges(self) -> None:
        self.in_flight.set(self.scheduler.in_flight)
        self.queued.set(self.scheduler.waiting)
        self.ready.set(self.model.is_ready)
        self.workers_ready.set(self.model.is_ready)
        self.load_seconds.set(self.model.load_seconds)

    def _observe_inferences(self, labels: tuple[str, str, str], calls: list[Call]) -> None:
        """Record stages, sizes, batches and rejections of infer calls."""
        self._observe_stages(labels, calls)

        received = []
        sent = []
        batches = []
        rejections: dict[str, int] = defaultdict(int)
        stuck_calls = 0
        for call in calls:
            outcome = call.outcome
            share = call.share
            if outcome.request_bytes:
                received.append(outcome.request_bytes)
            if outcome.error_class is None:
                sent.append(outcome.response_bytes)
            elif outcome.error_class in REASONS:
                rejections[REASONS[outcome.error_class]] += 1
            # The first request of a batch represents the call of predict().
            represents_call = share is None or share.is_first
            if outcome.error_class is PredictTimeout and represents_call:
                stuck_calls += 1
            if share is not None and share.is_first:
                batches.append(share.batch_rows)

        self.observe_all(self.received.labels(*labels), received)
        self.observe_all(self.sent.labels(*labels), sent)
        self.observe_all(self.rows, batches)
        self.stuck.inc(stuck_calls)
        for reason, count in rejections.items():
            self.rejected.labels(*labels, reason).inc(count)

    def _observe_stages(self, labels: tuple[str, str, str], calls: list[Call]) -> None:
        """Record the completed stages. One pass for each stage is faster than one for each call."""
        times_of_calls = [call.timings.stage_times for call in calls]
        for index, stage in enumerate(STAGES):
            durations = []
            for times in times_of_calls:
                begin = times[index]
                end = times[index + 1]
                if begin and end:
                    durations.append(end - begin)
            self.observe_all(self.stages.labels(*labels, stage), durations)
