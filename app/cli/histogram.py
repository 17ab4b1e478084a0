"""How long requests took, in buckets of at most 1.6 % each, so that any number of them takes the same memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, exp, log

# Buckets of a microsecond up to 64 of them, and 64 for each power of two from there on, up to an hour.
STEPS, BITS = 64, 6
LONGEST = 2**32 - 1
SIZE = (LONGEST.bit_length() - BITS + 1) * STEPS
BLOCKS = " ▏▎▍▌▋▊▉█"
BARS, BAR_WIDTH = 16, 40


class Histogram:
    def __init__(self, counts: Iterable[int] = ()) -> None:
        self.counts = list(counts) or [0] * SIZE

    def record(self, seconds: float) -> None:
        time = min(int(seconds * 1e6), LONGEST)
        shift = max(time.bit_length() - BITS - 1, 0)
        self.counts[shift * STEPS + (time >> shift)] += 1

    def add(self, other: Histogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """In seconds."""
        total = sum(count * middle(index) for index, count in enumerate(self.counts) if count)
        return total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """The seconds that so many percent of the requests took at most; 0 where there are none."""
        wanted, seen = max(ceil(self.count * percent / 100), 1), 0
        for index, count in enumerate(self.counts):
            seen += count
            if seen >= wanted:
                return middle(index)
        return 0.0

    def spread(self, bars: int = BARS) -> list[tuple[float, float, int]]:
        """From and to, in seconds, and how many: bars as wide as each other on a scale of logarithms."""
        found = [index for index, count in enumerate(self.counts) if count]
        if not found:
            return []
        low, high = log(max(lower(found[0]), 1e-6)), log(lower(found[-1] + 1))
        width = (high - low) / bars
        edges = [exp(low + width * number) for number in range(bars + 1)]
        sums = [0] * bars
        for index in found:
            sums[min(max(int((log(middle(index)) - low) / width), 0), bars - 1)] += self.counts[index]
        return list(zip(edges, edges[1:], sums, strict=False))


def lower(index: int) -> float:
    """Where the bucket begins, in seconds."""
    shift = max(index // STEPS - 1, 0)
    return ((index - shift * STEPS) << shift) / 1e6


def middle(index: int) -> float:
    return (lower(index) + lower(index + 1)) / 2


def draw(histogram: Histogram) -> list[str]:
    """A line a bar, for a terminal."""
    spread = histogram.spread()
    most = max((count for *_, count in spread), default=1)
    lines = []
    for low, high, count in spread:
        eighths = ceil(count / most * BAR_WIDTH * 8)
        bar = "█" * (eighths // 8) + BLOCKS[eighths % 8].strip()
        lines.append(f"{shown(low):>8} to {shown(high):>8}  {bar:<{BAR_WIDTH}}  {count:,}")
    return lines


def shown(seconds: float) -> str:
    """Three digits and their unit."""
    for unit, scale in (("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def plot(histogram: Histogram, title: str, path: str) -> None:
    """The same as an image; ImportError where matplotlib is not installed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    spread = histogram.spread(4 * BARS)
    edges = [low * 1e3 for low, _, _ in spread]
    widths = [(high - low) * 1e3 for low, high, _ in spread]
    axes.bar(edges, [count for *_, count in spread], widths, align="edge")
    for percent in (50, 99):
        axes.axvline(histogram.percentile(percent) * 1e3, color="black", linewidth=0.8)
        axes.text(
            histogram.percentile(percent) * 1e3, 1, f" p{percent}", transform=axes.get_xaxis_transform(), va="top"
        )
    axes.set_xscale("log")
    axes.set_xlabel("ms")
    axes.set_ylabel("requests")
    axes.set_title(title, fontsize=9)
    figure.savefig(path, dpi=150)
