"""Statistics of inference requests for Triton's tools (T3), as JSON objects.

Each worker counts its requests in a file that all workers can read and write. read() returns the
sums over the files.

A worker counts a request up to 0.1 s after its end, so read() waits until the requests that ended
before the call are counted. Requests that end during the wait must not be in the result: if
perf_analyzer finds no request between two calls, it fails, and a short run can end during the wait
of the first call. Workers therefore count these requests twice:

    read(), in any worker               observe(), in each worker
    ---------------------               -------------------------
    writes the time to `asked`
    waits                               adds all requests to `total`,
                                        and those that ended after `asked` to `late`
    returns `total` minus `late`

If a second call begins during the wait of the first one, `late` starts again from 0. The result of
the first call then contains the requests that ended between the starts of the two calls.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from app.inference.call import INFER, Call
from app.observability.metric_files import metrics_directory, own_slot
from app.observability.observer_queue import ObserverQueue
from app.observability.shared_read import ReaderLimit, SharedRead
from app.protocol.errors import NotFound, Unauthenticated
from app.protocol.metadata import ModelMetadata

SUCCESS = ("200", "OK")
NOT_COUNTED = (NotFound, Unauthenticated)  # requests that may be for another model
MAX_BATCH_SIZE = 1024  # batch size of all calls of predict() with at least as many rows
MAX_READ_SECONDS = 1.0  # more than the time that a call of read() waits

DURATION = np.dtype([("count", np.int64), ("ns", np.int64)])
CALLS = np.dtype(
    [("compute_input", DURATION), ("compute_infer", DURATION), ("compute_output", DURATION)]
)
COUNTERS = np.dtype(
    [
        ("inference_count", np.int64),
        ("success", DURATION),
        ("fail", DURATION),
        ("queue", DURATION),
        ("compute_input", DURATION),
        ("compute_infer", DURATION),
        ("compute_output", DURATION),
        ("calls", CALLS, MAX_BATCH_SIZE + 1),  # calls of predict(), by batch size
    ]
)
# Content of a worker's file. The times `asked` and `late_since` are those of time.monotonic().
WORKER = np.dtype(
    [
        ("last_inference", np.int64),  # in milliseconds since the epoch
        ("asked", np.float64),  # start of the latest read()
        ("late_since", np.float64),  # the value of `asked` that `late` belongs to
        ("late", COUNTERS),
        ("total", COUNTERS),
    ]
)


class Statistics:
    """Statistics of the model, summed over the workers. observe() is an observer of the queue."""

    def __init__(
        self, metadata: ModelMetadata, observer_queue: ObserverQueue, reader_limit: ReaderLimit
    ):
        self._metadata = metadata
        self._observer_queue = observer_queue
        self._shared_read = SharedRead(self._read, reader_limit)
        self._worker: Any = np.zeros(1, WORKER)[0]

    def start(self) -> None:
        """Continue the counts in the file of this worker's slot. Call this after the fork."""
        place = metrics_directory()
        if place:
            file = place / f"statistics_{own_slot()}.bin"
            file.touch()
            self._worker = np.memmap(file, WORKER, "r+", shape=1)[0]

    def observe(self, calls: list[Call]) -> None:
        """Count completed inference requests in `total`.

        While read() waits in any worker, also count those that ended after its start in `late`. See
        the docstring of this module.
        """
        successes = []
        failures = []
        for call in calls:
            if call.operation != INFER:
                continue
            if call.outcome.status in SUCCESS:
                if call.timings.predicted:  # predict() was called
                    successes.append(call)
            elif call.outcome.error_class not in NOT_COUNTED:
                failures.append(call)

        worker = self._worker
        if successes:
            epoch = time.time() - time.monotonic()
            worker["last_inference"] = 1e3 * (epoch + successes[-1].timings.ended)
        _count_successes(worker["total"], successes)
        _count_failures(worker["total"], failures)

        read_start = worker["asked"]  # of the latest call of read()
        is_new_read = worker["late_since"] != read_start
        if is_new_read:
            worker["late"] = np.zeros((), COUNTERS)
            worker["late_since"] = read_start
        may_still_wait = time.monotonic() < read_start + MAX_READ_SECONDS
        if may_still_wait:
            _count_successes(worker["late"], _select_late(successes, read_start))
            _count_failures(worker["late"], _select_late(failures, read_start))

    def read(self, release_thread: Callable[[], None] | None = None) -> dict[str, Any]:
        """Return the statistics of the requests that ended before this call.

        Block for 0.1 s, or 0.2 s if another thread reads, after a call of `release_thread`, if
        there is one. Raise Overloaded if too many threads wait.
        """
        return self._shared_read(release_thread)

    def _read(self) -> dict[str, Any]:
        """Return the statistics of the requests that ended before this call.

        Only one thread at a time calls this.
        """
        asked = time.monotonic()
        workers = self._read_workers()
        for worker in workers:
            worker["asked"] = asked
        self._observer_queue.wait_for_workers()

        counters = _sum_counters(workers, asked)
        zero = {"count": 0, "ns": 0}
        inference_stats = {
            "success": _to_json(counters["success"]),
            "fail": _to_json(counters["fail"]),
            "queue": _to_json(counters["queue"]),
            **_stages_to_json(counters),
            "cache_hit": zero,
            "cache_miss": zero,
        }
        call_counts = counters["calls"]["compute_infer"]["count"]
        batch_stats = []
        for batch_size in np.flatnonzero(call_counts).tolist():
            stages = _stages_to_json(counters["calls"][batch_size])
            batch_stats.append({"batch_size": batch_size, **stages})

        statistics = {
            "name": self._metadata.name,
            "version": self._metadata.version,
            "last_inference": max(int(worker["last_inference"]) for worker in workers),
            "inference_count": int(counters["inference_count"]),
            "execution_count": int(call_counts.sum()),
            "inference_stats": inference_stats,
            "batch_stats": batch_stats,
            "memory_usage": [],
        }
        return {"model_stats": [statistics]}

    def _read_workers(self) -> list[Any]:
        """Return the records of all workers, which map their files into memory.

        They include the records of workers that have exited.
        """
        place = metrics_directory()
        files = place.glob("statistics_*.bin") if place else ()
        workers = []
        for file in files:
            if file.stat().st_size:  # a new file is empty until its worker has mapped it
                workers.append(np.memmap(file, WORKER, "r+", shape=1)[0])
        return workers or [self._worker]


def _select_late(calls: list[Call], read_start: float) -> list[Call]:
    """Return the calls that ended after the start of read()."""
    return [call for call in calls if call.timings.ended > read_start]


def _count_failures(counters: Any, failures: list[Call]) -> None:
    if failures:
        seconds = np.array([call.timings.total_seconds for call in failures])
        _add(counters["fail"], _to_nanoseconds(seconds))


def _count_successes(counters: Any, successes: list[Call]) -> None:
    """Add the requests and their stages, and the calls of predict() that they represent."""
    if not successes:
        return
    stages = _to_nanoseconds(np.diff([call.timings.stage_times for call in successes]))
    decode, queue, predict, encode = stages.T
    _add(counters["success"], stages.sum(axis=1))
    _add(counters["queue"], queue)
    _add(counters["compute_input"], decode)
    _add(counters["compute_infer"], predict)
    _add(counters["compute_output"], encode)

    inferences = 0
    callers = []  # indexes of the requests that represent a call of predict()
    batch_sizes = []  # of these calls
    for index, call in enumerate(successes):
        share = call.share
        if share is None:  # without batching
            inferences += 1
            callers.append(index)
            batch_sizes.append(1)
            continue
        inferences += share.rows
        if share.is_first:  # the first request represents the call of its batch
            callers.append(index)
            batch_sizes.append(min(share.batch_rows, MAX_BATCH_SIZE))
    counters["inference_count"] += inferences

    calls = counters["calls"]
    indexes = np.array(callers, np.intp)
    sizes = np.array(batch_sizes, np.intp)
    _add_calls(calls["compute_input"], sizes, decode[indexes])
    _add_calls(calls["compute_infer"], sizes, predict[indexes])
    _add_calls(calls["compute_output"], sizes, encode[indexes])


def _to_nanoseconds(seconds: np.ndarray) -> np.ndarray:
    return (1e9 * seconds).astype(np.int64)


def _add(total: Any, durations: np.ndarray) -> None:
    """Add durations in nanoseconds to a record of the type DURATION."""
    total["count"] += len(durations)
    total["ns"] += durations.sum()


def _add_calls(totals: Any, batch_sizes: np.ndarray, durations: np.ndarray) -> None:
    """Add the duration of each call to the record of its batch size."""
    np.add.at(totals["count"], batch_sizes, 1)
    np.add.at(totals["ns"], batch_sizes, durations)


def _sum_counters(workers: list[Any], asked: float) -> Any:
    """Return the sums of the counters, without the requests that ended after `asked`."""
    sums = np.zeros(COUNTERS.itemsize // 8, np.int64)
    for worker in workers:
        # observe() writes `total` first. `late` is read first, so that it contains no request
        # that `total` lacks.
        if worker["late_since"] >= asked:
            sums -= np.frombuffer(worker["late"].tobytes(), np.int64)
        sums += np.frombuffer(worker["total"].tobytes(), np.int64)
    return sums.view(COUNTERS)[0]


def _to_json(duration: Any) -> dict[str, int]:
    return {"count": int(duration["count"]), "ns": int(duration["ns"])}


def _stages_to_json(record: Any) -> dict[str, Any]:
    return {
        "compute_input": _to_json(record["compute_input"]),
        "compute_infer": _to_json(record["compute_infer"]),
        "compute_output": _to_json(record["compute_output"]),
    }
