"""Read rows from CSV, Parquet, JSON Lines, NPY and single files, as Arrow tables of limited size."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from app.cli.common import Failure

FORMATS = ("csv", "parquet", "jsonl", "npy", "image")
IMAGES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"}
CHUNK_ROWS = 2**14
CSV_BLOCK_BYTES = 2**21  # a row must fit into it
GZIP_MAGIC = b"\x1f\x8b"
# The column of an NPY file, and the columns of files that are sent as they are.
ARRAY, CONTENTS, FILE = "array", "<contents>", "file"


class Source:
    """The rows of a file, or of files that are one row each. `head` is the first table, which may have no rows.

    Raise Failure if they cannot be read.
    """

    def __init__(
        self, paths: Sequence[str], format_name: str | None, batch_rows: int, delimiter: str, missing: str | None
    ):
        self.path, self.delimiter, self.missing = paths[0], delimiter, missing
        self.total: int | None = None
        self.file: Any = io.BytesIO()
        kinds = {format_name or format_of(each) for each in paths}
        self.format = kinds.pop() or ""
        if kinds or not self.format:
            raise Failure(f"{self.path}: unknown format. Use --format with one of {', '.join(FORMATS)}.")
        if len(paths) > 1 and self.format != "image":
            raise Failure(f"{paths[1]}: expected one file of rows, or several files for a BYTES input")
        self.batch_rows = 1 if self.format == "image" else batch_rows
        # A multiple of the batch, so that no batch has rows of two chunks of JSON Lines, whose types may differ.
        rows = batch_rows * max(1, CHUNK_ROWS // batch_rows)
        readers = {
            "csv": self._read_csv,
            "jsonl": self._read_jsonl,
            "parquet": self._read_parquet,
            "npy": self._read_npy,
        }
        reading = self._read_files(paths) if self.format == "image" else readers[self.format](rows)
        tables = self._naming_the_file(reading)
        self.head = next(tables)
        if not len(self.head):
            self.head = next(tables, self.head)
        self.tables = chain([self.head], tables)

    def batches(self) -> Iterator[pa.Table]:
        """Yield tables of `batch_rows` rows. The last one may have fewer."""
        rest = self.head.slice(0, 0)
        for table in self.tables:
            table = pa.concat_tables([rest, table]) if len(rest) else table
            whole = len(table) - len(table) % self.batch_rows
            for start in range(0, whole, self.batch_rows):
                yield table.slice(start, self.batch_rows)
            rest = table.slice(whole)
        if len(rest):
            yield rest

    def _naming_the_file(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables. Raise Failure with the file's name if one cannot be read."""
        try:
            yield from tables
        except (OSError, EOFError, ValueError, pa.ArrowException) as error:
            name = getattr(error, "filename", None) or self.path
            raise Failure(f"{name}: {getattr(error, 'strerror', None) or error}") from None

    def _open(self) -> Any:
        """Return the bytes of the file, decompressed if they are gzip."""
        raw: Any = sys.stdin.buffer if self.path == "-" else io.FileIO(self.path)
        self.file = io.BufferedReader(raw)
        return gzip.open(self.file) if self.file.peek(2).startswith(GZIP_MAGIC) else self.file

    def _read_csv(self, rows: int) -> Iterator[pa.Table]:
        """Yield columns of text: no value is altered before it is known what it is for."""
        stream = self._open()
        header = next((line for line in stream if line.strip()), b"").decode("utf-8-sig", "replace")
        names = [name.strip() for name in next(csv.reader([header], delimiter=self.delimiter), ())]
        if len(set(names)) < max(len(names), 1):
            raise ValueError("expected a header with a different name for each column")
        yield pa.table({name: pa.array([], pa.string()) for name in names})
        if stream.peek(1):
            # A blank line is a row if there is one column.
            parsing = arrow_csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
            )
            types, is_optional = dict.fromkeys(names, pa.string()), self.missing is not None
            conversion = arrow_csv.ConvertOptions(
                column_types=types, null_values=[self.missing or ""], strings_can_be_null=is_optional
            )
            reading = arrow_csv.ReadOptions(column_names=names, block_size=CSV_BLOCK_BYTES, use_threads=False)
            for batch in arrow_csv.open_csv(pa.PythonFile(stream, "r"), reading, parsing, conversion):
                yield pa.Table.from_batches([batch])

    def _read_jsonl(self, rows: int) -> Iterator[pa.Table]:
        objects = (_json_object(line, number) for number, line in enumerate(self._open(), 1) if line.strip())
        names: list[str] = []
        while chunk := list(islice(objects, rows)):
            names = names or list(dict.fromkeys(name for row in chunk for name in row))
            yield pa.table({name: _json_column([row.get(name) for row in chunk]) for name in names})
        if not names:
            yield pa.table({})

    def _read_parquet(self, rows: int) -> Iterator[pa.Table]:
        if self.path == "-":
            raise ValueError("Parquet cannot be read from stdin")
        file = pq.ParquetFile(self.path)
        self.total = file.metadata.num_rows
        yield file.schema_arrow.empty_table()
        for batch in file.iter_batches(rows):
            yield pa.Table.from_batches([batch])

    def _read_npy(self, rows: int) -> Iterator[pa.Table]:
        array = np.load(self.path, mmap_mode="r")
        if not array.ndim or not all(array.shape[1:]):
            raise ValueError("expected an array with rows")
        self.total = len(array)
        for start in range(0, len(array) or 1, rows):
            values = array[start : start + rows].ravel()
            column = pa.array(values.tolist() if values.dtype.kind in "US" else values)
            for size in reversed(array.shape[1:]):
                column = pa.FixedSizeListArray.from_arrays(column, size)
            yield pa.table({ARRAY: column})

    def _read_files(self, paths: Sequence[str]) -> Iterator[pa.Table]:
        self.total = len(paths)
        for path in paths:
            yield pa.table({CONTENTS: [Path(path).read_bytes()], FILE: [path]})


def format_of(path: str) -> str | None:
    """Return the format that the file's name ends with, before a .gz."""
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    name = "image" if suffix in IMAGES else suffix.replace("ndjson", "jsonl").removeprefix(".")
    return name if name in FORMATS else None


def _json_object(line: bytes, number: int) -> dict[str, Any]:
    row = orjson.loads(line) if line.startswith(b"{") else None
    if row is None:
        raise ValueError(f'line {number}: expected a JSON object, such as {{"x": 1}}')
    return row


def _json_column(values: list[Any]) -> pa.Array:
    """Return the values as a column. Values without a common type become text, from which numbers can be parsed."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([each if isinstance(each, str | None) else orjson.dumps(each).decode() for each in values])
