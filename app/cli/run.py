"""Rows on their way through a model: several batches at once, and what came of each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from app.cli import interrupts
from app.cli.columns import check_kept, columns_of, declared, kept_column
from app.cli.common import NOT_READY, Failure, one_line
from app.cli.matching import Matching
from app.cli.progress import Line, bar, clock
from app.cli.senders import Busy, Senders
from app.cli.tables import Rows, Table
from app.errors import InferenceError, shorten
from app.types import MetadataTensor

FAULTS_KEPT = 10_000


@dataclass(frozen=True)
class Options:
    batch_size: int
    in_flight: int
    fail_fast: bool
    skip_failed: bool


@dataclass
class Fault:
    """Rows that failed alike: the first, the one behind the last, and why."""

    start: int
    stop: int
    text: str

    def __str__(self) -> str:
        rows = f"rows {self.start + 1:,} to" if self.stop - self.start > 1 else "row"
        return f"{rows} {self.stop:,}: {one_line(self.text)}"


@dataclass
class Tally:
    """What came of a run."""

    rows: int = 0
    failed: int = 0
    seconds: float = 0
    faults: list[Fault] = field(default_factory=list)
    unanswered: int = 0

    def fail(self, start: int, stop: int, text: str) -> None:
        self.failed += stop - start
        last = self.faults[-1] if self.faults else None
        if last and last.stop == start and last.text == text:
            last.stop = stop
        elif len(self.faults) < FAULTS_KEPT:
            self.faults.append(Fault(start, stop, text))


class Run:
    """Batches on their way: several at once, their answers taken in the order of the rows."""

    def __init__(
        self, table: Table, matching: Matching, senders: Senders, sink: Any, kept: Sequence[str], options: Options
    ):
        self.table, self.matching, self.senders, self.sink, self.kept = table, matching, senders, sink, kept
        self.options, self.tally, self.begun, self.skipped = options, Tally(), time.monotonic(), 0

    def go(self) -> None:
        """Sends what is not done yet; raises Failure where it makes no sense to go on."""
        line = Line()
        window: deque[tuple[int, int, Future[Any]]] = deque()
        pool = ThreadPoolExecutor(self.options.in_flight)
        try:
            for start, stop, rows in self.batches():
                interrupts.check()
                window.append((start, stop, pool.submit(self.ask, rows, start, stop)))
                # twice as many: while the oldest is slow, the others go on
                while len(window) >= 2 * self.options.in_flight:
                    self.settle(*window.popleft())
                if line.is_due():
                    line.show(self.state())
            while window:
                self.settle(*window.popleft())
                if line.is_due():
                    line.show(self.state())
        finally:
            line.clear()
            self.senders.stop()
            pool.shutdown(cancel_futures=True)
            self.senders.close()
            self.tally.seconds = time.monotonic() - self.begun

    def batches(self) -> Iterator[tuple[int, int, Rows]]:
        """The rows that are not done, as many as a batch takes at most, behind their first and last numbers."""
        at = 0
        for piece in self.table.read({**self.matching.kinds, **dict.fromkeys(self.kept, "O")}):
            count = len(next(iter(piece.values()), ()))
            for first in range(0, count, self.options.batch_size):
                last = min(first + self.options.batch_size, count)
                gaps = self.sink.missing(at + first, at + last)
                self.skipped += last - first - sum(stop - start for start, stop in gaps)
                for start, stop in gaps:
                    yield start, stop, {name: array[start - at : stop - at] for name, array in piece.items()}
            at += count

    def ask(self, rows: Rows, start: int, stop: int) -> tuple[list[str], bytes]:
        """The answer to these rows as bytes of the output, behind its columns' names."""
        try:
            request = self.matching.request(rows, start)
            try:
                response = self.senders.infer(request)
            except InferenceError as error:
                raise self.matching.with_row(error, request, start) from None
            columns = columns_of(response, [kept_column(name, rows[name]) for name in self.kept], stop - start)
        except InferenceError as error:
            raise (error.about(shorten(", ".join(rows["file"]))) if self.matching.is_image else error) from None
        return self.sink.writer.names(columns), self.sink.writer.encode(columns)

    def settle(self, start: int, stop: int, answer: Future[tuple[list[str], bytes]]) -> None:
        try:
            columns, data = answer.result()
            self.add(start, stop, columns, data)
        except InferenceError as error:
            self.tally.unanswered = 0
            self.fail(start, stop, str(error))
        except Busy as busy:
            self.tally.unanswered += busy.is_gone
            self.fail(start, stop, str(busy))
            if self.tally.unanswered >= self.options.in_flight:
                raise Failure(f"the service is gone: {busy}", NOT_READY) from None

    def add(self, start: int, stop: int, columns: list[str], data: bytes) -> None:
        if self.sink.columns is None:
            check_kept(self.kept, [name for name in columns if columns.count(name) > 1])
            self.sink.begin(columns)
        if columns != self.sink.columns:
            return self.fail(start, stop, f"the answer has other columns: {', '.join(columns)}")
        self.sink.add(start, stop, data)
        self.tally.rows += stop - start
        self.tally.unanswered = 0
        return None

    def fail(self, start: int, stop: int, text: str) -> None:
        self.tally.fail(start, stop, text)
        if self.options.fail_fast:
            raise Failure(str(self.tally.faults[-1]))

    def state(self) -> str:
        done, seconds = self.tally.rows + self.tally.failed, time.monotonic() - self.begun
        part = (done + self.skipped) / self.table.total if self.table.total else self.table.part_read()
        left = f"  {clock(seconds / part * (1 - part))} left" if part else ""
        failed = f"  {self.tally.failed:,} failed" if self.tally.failed else ""
        return f"{bar(part)}{done:,} rows  {done / seconds:,.0f} rows/s{left}{failed}"

    @property
    def is_whole(self) -> bool:
        """Whether the output can be made, with all rows or with all that there will be."""
        return not self.tally.failed or self.options.skip_failed

    def finish(self, outputs: Sequence[MetadataTensor]) -> None:
        """Makes the output, which has columns even without a row; or keeps what is done of it."""
        if not self.is_whole:
            self.sink.pause()
            return
        if self.sink.columns is None:
            columns = declared(outputs, self.kept)
            self.sink.begin(self.sink.writer.names(columns))
            self.sink.add(0, 0, self.sink.writer.encode(columns))
        self.sink.finish()
