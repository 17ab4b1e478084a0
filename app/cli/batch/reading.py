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

from app.cli.batch.formats import FORMATS, format_of
from app.cli.common import Failure

CHUNK_ROWS = 2**14
CSV_BLOCK_BYTES = 2**21  # a row must fit into it
GZIP_MAGIC = b"\x1f\x8b"
# The column of an NPY file, and the columns of files that are sent as they are.
ARRAY, CONTENTS, FILE = "array", "<contents>", "file"


class Source:
    """The rows of a file, or of files with one row each. `head` is the first table.

    Raise Failure if they cannot be read, or if there are none.
    """

    def __init__(self, paths: Sequence[str], kind: str | None, batch_rows: int, delimiter: str, null: str | None):
        self.paths, self.path, self.delimiter, self.null = paths, paths[0], delimiter, null
        self.total: int | None = None
        self.file: Any = io.BytesIO()
        self.format = kind or format_of(self.path) or ""
        if self.format not in FORMATS:
            raise Failure(f"{self.path}: unknown format. Use --format with one of {', '.join(FORMATS)}.")
        if len(paths) > 1 and self.format != "image":
            raise Failure(f"{paths[1]}: expected one file of rows, or several files for a BYTES input")
        self.batch_rows = 1 if self.format == "image" else batch_rows
        tables = self._read()
        if not (head := next(tables, None)):
            raise Failure(f"{self.path}: no rows")
        self.head, self.tables = head, chain([head], tables)

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

    def _read(self) -> Iterator[pa.Table]:
        """Yield the tables. Raise Failure with the file's name if one cannot be read."""
        reader = getattr(self, f"_read_{self.format}")
        # A multiple of the batch, so that no batch has rows of two chunks of JSON Lines, whose types may differ.
        rows = self.batch_rows * max(1, CHUNK_ROWS // self.batch_rows)
        try:
            yield from reader(rows)
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
        if not stream.peek(1):
            return
        parsing = arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        parsing.ignore_empty_lines = len(names) > 1  # in a single column, an empty line is a row
        conversion = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        conversion.null_values, conversion.strings_can_be_null = [self.null or ""], self.null is not None
        reading = arrow_csv.ReadOptions(column_names=names, block_size=CSV_BLOCK_BYTES, use_threads=False)
        for batch in arrow_csv.open_csv(pa.PythonFile(stream, "r"), reading, parsing, conversion):
            yield pa.Table.from_batches([batch])

    def _read_jsonl(self, rows: int) -> Iterator[pa.Table]:
        """Yield the members of the first chunk's objects. Their values need a common type."""
        objects = (orjson.loads(line) for line in self._open() if line.strip())
        names: list[str] = []
        while chunk := list(islice(objects, rows)):
            if not all(isinstance(row, dict) for row in chunk):
                raise ValueError('expected a JSON object in each line, such as {"x": 1}')
            names = names or list(dict.fromkeys(chain.from_iterable(chunk)))
            yield pa.table({name: [row.get(name) for row in chunk] for name in names})

    def _read_parquet(self, rows: int) -> Iterator[pa.Table]:
        file = pq.ParquetFile(self.path)
        self.total = file.metadata.num_rows
        for batch in file.iter_batches(rows):
            yield pa.Table.from_batches([batch])

    def _read_npy(self, rows: int) -> Iterator[pa.Table]:
        array = np.atleast_1d(np.load(self.path, mmap_mode="r"))
        self.total = len(array)
        for start in range(0, len(array), rows):
            column = pa.array(array[start : start + rows].ravel())
            for size in reversed(array.shape[1:]):
                column = pa.FixedSizeListArray.from_arrays(column, size)
            yield pa.table({ARRAY: column})

    def _read_image(self, rows: int) -> Iterator[pa.Table]:
        self.total = len(self.paths)
        for path in self.paths:
            yield pa.table({CONTENTS: [Path(path).read_bytes()], FILE: [path]})
