"""Statistics of inference requests for Triton's tools (T3), as JSON objects."""

import time
from typing import Any

import numpy as np

from app.inference.data_plane import DataPlane
from app.inference.request_context import INFER, RequestContext
from app.observability.metric_files import metrics_directory, own_slot
from app.protocol.errors import NotFound, Unauthenticated

SUCCESS = ("200", "OK")
NOT_COUNTED = (NotFound, Unauthenticated)  # requests that may be for another model
STAGES = ("compute_input", "compute_infer", "compute_output", "queue")
MAX_SIZE = 1024  # batch size of all calls of predict() with at least as many rows
RECENT = 1024  # number of requests that read() can leave out. perf_analyzer fails if its first call counts later ones
# Totals of a worker. Times are in nanoseconds, and `last` is in milliseconds since the epoch.
# sums: inferences, requests, and the time of each of STAGES, for successful requests. Row N is for requests that
#   represent a call of predict() with the batch size N. Row 0 is for the other requests of batches.
# recent: the last successful requests, each with its end, its row of `sums`, and its summands.
# fail: number of the other requests, and their time.
TOTALS = np.dtype(
    [
        ("sums", "i8", (MAX_SIZE + 1, 6)),
        ("recent", "i8", (RECENT, 8)),
        ("fail", "i8", 2),
        ("last", "i8"),
    ]
)


class Statistics:
    """Statistics of the model, summed over the workers. observe() is an observer of the queue."""

    def __init__(self, plane: DataPlane):
        self.plane, self._totals = plane, np.zeros(1, TOTALS)

    def start(self) -> None:
        """Store the totals of this worker in the file of its slot. Call this after the fork."""
        if place := metrics_directory():
            (file := place / f"statistics_{own_slot()}.bin").touch()
            self._totals = np.memmap(file, TOTALS, "r+", shape=1)

    def observe(self, contexts: list[RequestContext]) -> None:
        """Count completed inference requests."""
        own, inferences = self._totals[0], [each for each in contexts if each.operation == INFER]
        if failed := [
            each
            for each in inferences
            if each.status not in SUCCESS and each.failure not in NOT_COUNTED
        ]:
            own["fail"] += len(failed), int(1e9 * sum(each.ended - each.begun for each in failed))
        if done := [each for each in inferences if each.status in SUCCESS and each.predicted]:
            own["last"] = int(1e3 * (time.time() - time.monotonic() + done[-1].ended))
            rows = to_rows(done)
            np.add.at(
                own["sums"], rows[:, 1], rows[:, 2:]
            )  # before `recent`, because read() reads `recent` first
            newest = own["sums"][
                :, 1
            ].sum()  # number of requests, for the position in a ring buffer
            own["recent"][(newest - np.arange(len(rows))) % RECENT] = rows

    def read(self, name: str = "", version: str | None = None) -> dict[str, Any]:
        """Return the statistics of the requests that ended before this call. Raise NotFound as metadata() does."""
        now, model = time.monotonic(), self.plane.metadata(name or None, version)
        self.plane.observer_queue.wait_for_workers()
        files = place.glob("statistics_*.bin") if (place := metrics_directory()) else ()
        workers = np.concatenate([np.fromfile(file, TOTALS) for file in files] or [self._totals])
        recent, sums = np.concatenate(workers["recent"]), workers["sums"].sum(axis=0)
        later = recent[recent[:, 0] > 1e9 * now]
        np.subtract.at(sums, later[:, 1], later[:, 2:])
        inferences, count, *times = sums.sum(axis=0).tolist()
        stats = {
            "success": duration(count, sum(times)),
            "fail": duration(*workers["fail"].sum(axis=0).tolist()),
        }
        stats |= stage_durations(count, times) | {
            "cache_hit": duration(0, 0),
            "cache_miss": duration(0, 0),
        }
        calls = [(size, row) for size, row in enumerate(sums[:, 1:5].tolist()) if size and row[0]]
        found = {
            "name": model.name,
            "version": model.version,
            "last_inference": int(workers["last"].max()),
            "inference_count": inferences,
            "execution_count": sum(row[0] for _, row in calls),
            "inference_stats": stats,
            "batch_stats": [
                {"batch_size": size, **stage_durations(row[0], row[1:])} for size, row in calls
            ],
            "memory_usage": [],
        }
        return {"model_stats": [found]}


def to_rows(contexts: list[RequestContext]) -> np.ndarray:
    """Return a row of `recent` for each request."""
    sizes = [
        min(each.batch_rows or 1, MAX_SIZE) if each.leads or not each.batch_rows else 0
        for each in contexts
    ]
    counts = [each.rows if each.batch_rows else 1 for each in contexts], [1] * len(contexts)
    begun, decoded, started, predicted, ended = 1e9 * np.transpose(
        [each.times for each in contexts]
    )
    times = (
        decoded - begun,
        predicted - started,
        ended - predicted,
        started - decoded,
    )  # in the order of STAGES
    return np.column_stack([ended, sizes, *counts, *times]).astype(np.int64)


def duration(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}


def stage_durations(count: int, times: list[int]) -> dict[str, Any]:
    """Return the durations of STAGES. A batch has no time for the last one, `queue`."""
    return {name: duration(count, each) for name, each in zip(STAGES, times, strict=False)}
