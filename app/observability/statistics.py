"""Statistics of inference requests for Triton's tools (T3), as the JSON form of its protobuf messages."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from app.inference.data_plane import DataPlane
from app.inference.request_context import INFER, RequestContext
from app.observability.metric_files import metrics_directory, own_slot
from app.protocol.errors import NotFound, Unauthenticated

SUCCESS = ("200", "OK")
FOREIGN = (NotFound, Unauthenticated)  # failures of requests that may be for another model
MAX_SIZE = 1024  # batch size of all calls of predict() with at least as many rows
RECENT = 1024  # number of requests that read() can leave out
STEPS = "compute_input compute_infer compute_output queue"
# A row of `sums` adds up successful requests: inferences, requests, and nanoseconds for each of STEPS. Row N is for
# requests that represent a call of predict() with the batch size N. Row 0 is for the other requests in batches.
# A row of `recent` is one request: when it ended, its row of `sums`, and its summands.
TOTALS = np.dtype([("recent", "i8", (RECENT, 8)), ("sums", "i8", (MAX_SIZE + 1, 6)), ("fail", "i8", 2), ("last", "i8")])


class Statistics:
    """Statistics of the model, summed over the workers. observe() is an observer of the queue."""

    def __init__(self, plane: DataPlane):
        self.plane, self._own = plane, np.zeros(1, TOTALS)

    def start(self) -> None:
        """Store the totals of this worker in the file of its slot. Call this after the fork."""
        if place := metrics_directory():
            (file := place / f"statistics_{own_slot()}.bin").touch()
            self._own = np.memmap(file, TOTALS, "r+", shape=1)

    def observe(self, contexts: list[RequestContext]) -> None:
        """Count completed inference requests. The first request of a batch represents its call of predict()."""
        own, inferences = self._own, [each for each in contexts if each.operation == INFER]
        if failed := [each for each in inferences if each.status not in SUCCESS and each.failure not in FOREIGN]:
            own["fail"] += len(failed), int(1e9 * sum(each.ended - each.begun for each in failed))
        if done := [each for each in inferences if each.status in SUCCESS and each.predicted]:
            own["last"] = int(1e3 * (time.time() - time.monotonic() + done[-1].ended))
            sizes = [min(each.rows or 1, MAX_SIZE) if each.leads or not each.rows else 0 for each in done]
            counts = [each.own_rows or 1 for each in done], [1] * len(done)
            begun, decoded, started, predicted, ended = 1e9 * np.transpose([each.times for each in done])
            times = decoded - begun, predicted - started, ended - predicted, started - decoded  # in the order of STEPS
            rows = np.column_stack([ended, sizes, *counts, *times]).astype(np.int64)
            np.add.at(own["sums"][0], sizes, rows[:, 2:])  # before `recent`, because read() reads `recent` first
            own["recent"][0, (own["sums"][0, :, 1].sum() - np.arange(len(rows))) % RECENT] = rows

    def read(self, name: str = "", version: str | None = None) -> dict[str, Any]:
        """Return the statistics of the requests that ended before this call. Raise NotFound as metadata() does."""
        now, model = time.monotonic(), self.plane.metadata(name or None, version)
        self.plane.observer_queue.wait_for_workers()
        files = place.glob("statistics_*.bin") if (place := metrics_directory()) else ()
        workers = np.concatenate([np.fromfile(file, TOTALS) for file in files] or [self._own])
        sums, recent = workers["sums"].sum(axis=0), np.concatenate(workers["recent"])
        later = recent[recent[:, 0] > 1e9 * now]  # perf_analyzer fails if its first call counts all of its requests
        np.subtract.at(sums, later[:, 1], later[:, 2:])
        inferences, count, *times = sums.sum(axis=0).tolist()
        head = {"name": model.name, "version": model.version, "last_inference": int(workers["last"].max())}
        counts = {"inference_count": inferences, "execution_count": int(sums[1:, 1].sum())}
        fail = workers["fail"].sum(axis=0).tolist()
        inference_stats = durations("success", count, sum(times)) | durations("fail", *fail)
        inference_stats |= durations(STEPS, count, *times) | durations("cache_hit cache_miss", 0, 0, 0)
        sizes = [(size, row) for size, row in enumerate(sums[:, 1:5].tolist()) if size and row[0]]
        batch_stats = [{"batch_size": size, **durations(STEPS, *row)} for size, row in sizes]
        lists = {"batch_stats": batch_stats, "memory_usage": []}
        return {"model_stats": [{**head, **counts, "inference_stats": inference_stats, **lists}]}


def durations(names: str, count: int, *ns: int) -> dict[str, Any]:
    """Return the durations by name. Names without nanoseconds, such as the queue of a batch, are left out."""
    return {name: {"count": count, "ns": each} for name, each in zip(names.split(), ns, strict=False)}
