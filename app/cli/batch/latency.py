"""Count latencies, and compute their percentiles."""

from __future__ import annotations

from math import log2

import numpy as np

BUCKETS_PER_DOUBLING = 64  # a bucket is 1.1 % wide
BUCKETS = 32 * BUCKETS_PER_DOUBLING  # more than an hour, in microseconds


class Latencies:
    """Numbers of requests by latency. Memory does not grow with the number of requests."""

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS

    def record(self, seconds: float) -> None:
        self.counts[min(int(log2(max(seconds * 1e6, 1)) * BUCKETS_PER_DOUBLING), BUCKETS - 1)] += 1

    def add(self, other: Latencies) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]

    @property
    def count(self) -> int:
        return sum(self.counts)

    def mean(self) -> float:
        """Return the mean in milliseconds."""
        return float(np.dot(self.counts, _milliseconds(np.arange(BUCKETS) + 0.5))) / max(self.count, 1)

    def percentile(self, percent: float) -> float:
        """Return the latency in milliseconds that `percent` of the requests did not exceed."""
        bucket = np.searchsorted(np.cumsum(self.counts), max(self.count * percent / 100, 1))
        return float(_milliseconds(bucket + 0.5)) if self.count else 0.0

    def plot(self, title: str, path: str) -> None:
        """Write a histogram as an image. This needs matplotlib."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        buckets = np.arange(BUCKETS).reshape(-1, BUCKETS_PER_DOUBLING // 8)
        axes.stairs(np.reshape(self.counts, buckets.shape).sum(1), _milliseconds(np.append(buckets[:, 0], BUCKETS)))
        for percent in (50, 99):
            axes.axvline(self.percentile(percent), color="black", linewidth=0.8)
        limits = self.percentile(0) * 0.9, self.percentile(100) * 1.1
        axes.set(xscale="log", xlim=limits, xlabel="ms (lines: p50 and p99)", ylabel="requests", title=title)
        figure.savefig(path, dpi=150)


def _milliseconds(bucket: np.ndarray) -> np.ndarray:
    return 2 ** (bucket / BUCKETS_PER_DOUBLING) / 1e3
