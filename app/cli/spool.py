"""Rows that are done, kept beside the output until all are: what was stopped, or failed in part, goes on from there.

OUT.part holds the rows in the order in which they were done, and OUT.journal which ones they are: its first line says
what the run is about, and each other line is [first row, row behind the last, offset, bytes] of OUT.part. A line counts
only when it is whole, and so are its rows, which a crash of the system may have lost; bytes that no line speaks of are
cut off: so no row comes twice, or in half.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from app.cli.common import Failure
from app.cli.writearrays import as_text, read_frames
from app.errors import InferenceError

# A line for so many bytes or seconds, whichever are first: what a kill loses is done again.
BYTES_A_LINE, SECONDS_A_LINE = 2**12, 0.25
COPY_BYTES = 2**20

Range = list[int]  # first row, row behind the last, offset, bytes


def beside(path: Path, what: str) -> Path:
    return path.with_name(f"{path.name}.{what}")


class Stream:
    """An output that takes rows as they come, such as a pipe: there is nothing to resume."""

    columns: list[str] | None = None
    part = None

    def __init__(self, path: str, writer: Any):
        if hasattr(writer, "write"):
            raise Failure("Parquet, NPY and NPZ need a file to go to: --output FILE")
        try:
            self.file: BinaryIO = sys.stdout.buffer if path == "-" else open(path, "wb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None
        self.writer = writer

    def missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [(start, stop)]

    def begin(self, columns: list[str]) -> None:
        self.columns = columns
        self.file.write(self.writer.header(columns))

    def add(self, start: int, stop: int, data: bytes) -> None:
        self.file.write(data)
        self.file.flush()

    def pause(self) -> None:
        pass

    def finish(self) -> None:
        self.file.flush()

    def close(self) -> None:
        if self.file is not sys.stdout.buffer:
            with suppress(OSError):  # what could not be written was told when it was
                self.file.close()


class Spool:
    def __init__(self, path: Path, writer: Any, about: dict[str, Any], resume: bool):
        self.path, self.writer, self.about = path, writer, about
        self.part, self.journal = (beside(path, each) for each in ("part", "journal"))
        self.columns: list[str] | None = None
        self.ranges: list[Range] = []
        self.told, self.untold = 0.0, 0
        self.remedy = "--resume goes on"
        had_part = self.part.exists()
        try:
            self.file: Any = open(os.open(self.part, os.O_RDWR | os.O_CREAT, 0o666), "r+b")  # noqa: SIM115
        except OSError as error:
            raise Failure(f"{self.part}: {error.strerror}") from None
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            told = self._read_journal() if had_part else b""
            if told and not resume:
                raise Failure(f"{self.part} is of a run that did not end: --resume goes on with it; or delete it first")
            self._load(told)
            self.lines = self.journal.open("a" if told else "w")
        except BaseException as error:
            self.file.close()
            if isinstance(error, BlockingIOError):
                raise Failure(f"{self.part}: another run is writing it") from None
            if isinstance(error, OSError):
                raise Failure(f"{self.journal}: {error.strerror}") from None
            raise

    def _read_journal(self) -> bytes:
        """The whole lines of the journal whose rows are there, none where it tells of no row."""
        text = self.journal.read_bytes() if self.journal.exists() else b""
        head, *lines = text[: text.rfind(b"\n") + 1].splitlines(keepends=True) or [b""]
        held = os.fstat(self.file.fileno()).st_size  # what the system has kept of it, where that crashed
        lines = list(takewhile(lambda line: sum(json.loads(line)[2:]) <= held, lines))
        return b"".join([head, *lines]) if lines else b""

    def _load(self, told: bytes) -> None:
        if not told:
            self.file.truncate(0)
            return
        head, *ranges = map(json.loads, told.splitlines())
        self.columns = head.pop("columns")
        if head["format"] == "frames" and not hasattr(self.writer, "write"):
            self.writer, self.about["format"] = as_text(self.writer), "frames"
        if changed := [name for name, value in head.items() if self.about.get(name) != value]:
            raise Failure(f"{self.part} is of a run with another {changed[0]}; delete it to begin anew")
        self.ranges = list({offset: [start, stop, offset, size] for start, stop, offset, size in ranges}.values())
        os.truncate(self.journal, len(told))
        self.file.truncate(self.end)
        self.file.seek(self.end)

    @property
    def end(self) -> int:
        """Where the rows end, behind the header."""
        last = self.ranges[-1] if self.ranges else [0, 0, len(self.writer.header(self.columns or [])), 0]
        return last[2] + last[3]

    @property
    def rows(self) -> int:
        return sum(stop - start for start, stop, *_ in self.ranges)

    def missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The rows from `start` to before `stop` that are not done, as ranges."""
        gaps, at = [], start
        for done, end, *_ in self.sorted:
            if done < stop and end > at:
                if done > at:
                    gaps.append((at, done))
                at = end
        return [*gaps, (at, stop)] if at < stop else gaps

    @property
    def sorted(self) -> list[Range]:
        return sorted(self.ranges)

    def begin(self, columns: list[str]) -> None:
        """Says which columns the rows have; comes before the first."""
        self.columns = columns
        self.file.write(self.writer.header(columns))
        self.file.flush()
        self._tell({**self.about, "columns": columns})

    def add(self, start: int, stop: int, data: bytes) -> None:
        last = self.ranges[-1] if self.ranges else None
        offset = self.end
        self.file.write(data)
        if last and last[1] == start:
            last[1], last[3] = stop, last[3] + len(data)
        else:
            self._note()
            self.ranges.append([start, stop, offset, len(data)])
        self.untold += len(data)
        if self.untold > BYTES_A_LINE or time.monotonic() > self.told + SECONDS_A_LINE:
            self._note()

    def _note(self) -> None:
        if self.ranges:
            self.file.flush()
            self._tell(self.ranges[-1])

    def _tell(self, line: Any) -> None:
        self.told, self.untold = time.monotonic(), 0
        self.lines.write(json.dumps(line) + "\n")
        self.lines.flush()

    def pause(self) -> None:
        """Keeps what is done for later, if anything is."""
        self._note()
        if not self.rows:
            self.part.unlink(missing_ok=True)
            self.journal.unlink(missing_ok=True)
        self.close()

    def finish(self) -> None:
        """Makes the output of the rows that are there, in their order, and takes the rest away."""
        self._note()
        self.file.flush()
        if hasattr(self.writer, "write"):
            self._replace(self._write_file)
        elif self.ranges != self.sorted:
            self._replace(self._copy)
        else:
            os.replace(self.part, self.path)
        self.close()
        self.journal.unlink()
        self.part.unlink(missing_ok=True)

    def close(self) -> None:
        self.file.close()
        self.lines.close()

    def _replace(self, make: Any) -> None:
        whole = beside(self.path, "whole")
        try:
            make(whole)
            os.replace(whole, self.path)
        finally:
            whole.unlink(missing_ok=True)

    def _write_file(self, path: Path) -> None:
        def pieces() -> Iterator[Any]:
            return read_frames(self.file, [(offset, size) for _, _, offset, size in self.sorted])

        try:
            self.writer.write(path, pieces)
        except (Failure, InferenceError) as error:
            self.remedy = "--resume with another --output-format, such as csv, writes them"
            raise Failure(f"{self.path}: {error}") from None

    def _copy(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(self.writer.header(self.columns or []))
            for _, _, offset, left in self.sorted:
                self.file.seek(offset)
                while left:
                    piece = self.file.read(min(left, COPY_BYTES))
                    file.write(piece)
                    left -= len(piece)
