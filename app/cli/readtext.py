"""Tables of text: CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
from packaging.version import Version

from app.cli.common import Failure
from app.cli.ragged import Ragged, check_text
from app.cli.sources import File
from app.cli.tables import ABSENT, GAPS, READ_ROWS, Rows, Table
from app.datatypes import object_array

HEAD_ROWS = 100
# By default pandas reads a third of all floats one unit in the last place off before this version, behind which it
# warns of the option.
READS_FLOATS_EXACTLY = (3, 1)


class TextTable(Table):
    file: File

    def part_read(self) -> float | None:
        return self.file.part_read()

    def close(self) -> None:
        self.file.close()


class CsvTable(TextTable):
    """`null` is what a missing cell holds in any column, beside what stands for no number in one of floats."""

    def __init__(self, file: File, has_names: bool, separator: str = "", null: str | None = None):
        import pandas as pd

        self.file, self.has_names, self.separator = file, has_names, separator or ","
        self.gaps, self.tells_gaps = [] if null is None else [null], null is not None
        head = file.peek()
        if not head.strip():
            raise Failure(f"{file.name} has no rows and no header")
        check_text(file.name, head)
        try:
            with warnings.catch_warnings():  # of rows that are longer than the header
                warnings.simplefilter("error", pd.errors.ParserWarning)
                header = 0 if has_names else None
                sample = pd.read_csv(
                    io.BytesIO(head), header=header, nrows=HEAD_ROWS, index_col=False, sep=self.separator
                )
        except (ValueError, pd.errors.ParserWarning) as error:
            raise self.fault(head, error) from None
        if not has_names:
            sample.columns = [str(number) for number in range(1, len(sample.columns) + 1)]
        sample.columns = [str(name).strip() for name in sample.columns]
        if has_names:
            names = first_row(head, self.separator)  # pandas calls a second "x" another name
            if twice := [name for name, count in Counter(map(str.strip, names)).items() if name and count > 1]:
                raise Failure(f'{file.name}: two columns are "{twice[0]}"')
            self.hint = "; --no-header, if its first line is a row"
            self.doubt = doubt_of(names, separator)
        numeric = sample.select_dtypes(["number", "bool"]).columns
        super().__init__(list(map(str, sample.columns)), list(map(str, numeric)))
        # a blank line of an only column is a row, so what is before the names has to be counted
        self.is_single = len(self.columns) == 1
        before = head[: len(head) - len(head.lstrip())] + b"."
        self.header = (len(before.splitlines()) - 1) * self.is_single if has_names else None

    def fault(self, head: bytes, error: Exception) -> Failure:
        """What pandas does not like, with the line where that is a row which has not as many fields as the first."""
        first = first_row(head, self.separator)
        hint = separated(first) if self.separator == "," else ""
        rows = Ragged(self.file.name, self.separator, len(first))
        try:
            if "EOF" not in str(error):
                rows.take(head)
                rows.take(b"")
        except Failure as failure:
            return Failure(failure.message + (hint and f"; {hint}"))
        return Failure(f"{self.file.name}: {error}")

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        import pandas as pd

        self.file.watch = Ragged(self.file.name, self.separator, len(self.columns)).take
        try:
            with pd.read_csv(
                self.file,
                sep=self.separator,
                header=self.header,
                skip_blank_lines=not self.is_single,
                names=self.columns,
                usecols=[name for name in self.columns if name in columns],
                dtype={name: object for name, kind in columns.items() if kind == "O"},
                keep_default_na=False,
                na_values={name: self.gaps + GAPS * (kind == "f") for name, kind in columns.items()},
                index_col=False,
                low_memory=False,
                chunksize=READ_ROWS,
                **exactly(pd.__version__),
            ) as pieces:
                for piece in pieces:
                    yield {name: piece[name].to_numpy() for name in piece}
        except ValueError as error:
            raise self.file.error or Failure(f"{self.file.name}: {error}") from None


def exactly(version: str) -> dict[str, Any]:
    """What makes that version of pandas read every float as it is written."""
    return {} if Version(version).release >= READS_FLOATS_EXACTLY else {"float_precision": "round_trip"}


def first_row(head: bytes, separator: str) -> list[str]:
    """The fields of the first line that is not blank."""
    text = io.StringIO(head.decode(errors="replace").lstrip("\ufeff"), newline=None)
    return next((row for row in csv.reader(text, delimiter=separator) if "".join(row).strip()), [])


def separated(first: list[str]) -> str:
    """What helps where the names of the columns are one, with another separator in it."""
    others = [name for mark, name in ((";", ";"), ("\t", "tab")) if mark in "".join(first)]
    if len(first) > 1 or not others:
        return ""
    return f'the file seems to be separated by "{others[0]}"; --separator "{others[0]}"'


def doubt_of(first: list[str], separator: str) -> str:
    """Why the first line may not be the names of the columns."""
    if not separator and (hint := separated(first)):
        return hint
    if first and all(map(is_number, first)):
        return "each name in the header is a number; --no-header, or --columns A,B,... if they are names"
    return ""


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


class JsonLines(TextTable):
    """An object a line. A member that holds a list is a row of an array."""

    def __init__(self, file: File):
        self.file = file
        first = next((line for line in file.peek().split(b"\n") if line.strip()), None)
        row = self.row(first, 1) if first else {}
        super().__init__(list(row), [name for name, value in row.items() if isinstance(value, float | int)])

    def row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise Failure(f"{self.file.name}: line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise Failure(f'{self.file.name}: line {number}: expected an object, such as {{"x": 1}}')
        return row

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(self.file, 1):
            if line and not line.isspace():
                rows.append(self.row(line, number))
            if len(rows) == READ_ROWS:
                yield self.columns_of(columns, rows)
                rows = []
        if rows:
            yield self.columns_of(columns, rows)

    def columns_of(self, names: Iterable[str], rows: list[dict[str, Any]]) -> Rows:
        return {name: object_array([row.get(name, ABSENT) for row in rows]) for name in names}
