"""Read rows from CSV, Parquet, JSON Lines, NPY and single files, as Arrow tables of limited size."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from app.cli.common import Failure

FORMATS = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".npy": "npy"}
FORMATS |= dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"), "image")
CHUNK_ROWS = 2**14
CSV_BLOCK_BYTES = 2**22  # a row must fit into it
GZIP_MAGIC = b"\x1f\x8b"
# The column of an NPY file, and the columns of files that are sent as they are.
ARRAY, CONTENTS, FILE = "array", "<contents>", "file"


class CsvOptions(NamedTuple):
    """`missing` is the text of a missing value."""

    has_header: bool = True
    delimiter: str = ","
    missing: str | None = None


class Source:
    """The rows of a file, or of files that are one row each. `head` is the first table, which may have no rows.

    Raise Failure if they cannot be read.
    """

    def __init__(self, paths: Sequence[str], format_name: str | None, batch_rows: int, options: CsvOptions):
        self.path = paths[0]
        kinds = {format_name or format_of(each) for each in paths}
        if len(kinds) > 1 or None in kinds:
            names = ", ".join(sorted(set(FORMATS.values())))
            raise Failure(f"{self.path}: unknown format. Use --format with one of {names}.")
        self.format = kinds.pop()
        if len(paths) > 1 and self.format != "image":
            raise Failure(f"{paths[1]}: expected one file of rows, or several files for a BYTES input")
        # A multiple of the batch, so that no batch has rows of two chunks of JSON Lines, whose types may differ.
        rows = batch_rows * max(1, CHUNK_ROWS // batch_rows)
        self.batch_rows = 1 if self.format == "image" else batch_rows
        self.total = self.size = 0
        self.file: Any = None
        readers = {
            "csv": lambda: self._read_csv(options),
            "jsonl": lambda: self._read_jsonl(rows),
            "parquet": lambda: self._read_parquet(rows),
            "npy": lambda: self._read_npy(rows),
            "image": lambda: self._read_files(paths),
        }
        tables = self._naming_the_file(readers[self.format]())
        self.head = next(tables)
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

    def part_read(self, rows: int) -> float | None:
        """Return which part of the source, from 0 to 1, is done after `rows` rows, if that is known."""
        if self.total:
            return rows / self.total
        return self.file.tell() / self.size if self.size else None

    def _naming_the_file(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables. Raise Failure with the file's name if one cannot be read."""
        try:
            yield from tables
        except (OSError, EOFError, ValueError, pa.ArrowException) as error:
            name = getattr(error, "filename", None) or self.path
            raise Failure(f"{name}: {getattr(error, 'strerror', None) or error}") from None

    def _open(self) -> Any:
        """Return the bytes of the file, decompressed if they are gzip."""
        if self.path != "-":
            self.size = Path(self.path).stat().st_size
        self.file = io.BufferedReader(sys.stdin.buffer if self.path == "-" else io.FileIO(self.path))  # type: ignore[arg-type]
        return gzip.open(self.file) if self.file.peek(2).startswith(GZIP_MAGIC) else self.file

    def _read_csv(self, options: CsvOptions) -> Iterator[pa.Table]:
        """Yield columns of text: no value is altered before it is known what it is for."""
        stream = self._open()
        first = next((line for line in stream if line.strip()), None)
        if first is None:
            raise ValueError("no rows and no header")
        names = next(csv.reader([first.decode("utf-8-sig", "replace")], delimiter=options.delimiter))
        if options.has_header:
            names = [name.strip() for name in names]
            # A blank line is a row if there is one column.
            first = stream.readline() if len(names) == 1 else next((line for line in stream if line.strip()), b"")
        else:
            names = [str(number) for number in range(1, len(names) + 1)]
        if len(set(names)) < len(names):
            raise ValueError(f'two columns are named "{max(names, key=names.count)}"')
        yield pa.table({name: pa.array([], pa.string()) for name in names})
        if first:
            batches = arrow_csv.open_csv(
                pa.PythonFile(_Joined(first, stream), "r"),
                arrow_csv.ReadOptions(column_names=names, block_size=CSV_BLOCK_BYTES, use_threads=False),
                arrow_csv.ParseOptions(
                    delimiter=options.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
                ),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[options.missing or ""],
                    strings_can_be_null=options.missing is not None,
                ),
            )
            yield from (pa.Table.from_batches([batch]) for batch in batches)

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
        schema = pa.schema([(each.name, _value_type(each.type)) for each in file.schema_arrow])
        yield schema.empty_table()
        for batch in file.iter_batches(rows):
            yield pa.Table.from_batches([batch]).cast(schema)

    def _read_npy(self, rows: int) -> Iterator[pa.Table]:
        is_plain = self.path != "-" and not self.path.endswith(".gz")
        array = np.load(self.path, mmap_mode="r") if is_plain else np.load(io.BytesIO(self._open().read()))
        if not isinstance(array, np.ndarray) or not array.ndim or not all(array.shape[1:]):
            raise ValueError("expected one array with rows")
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


class _Joined(io.RawIOBase):
    """Bytes that were read from a stream, and the rest of the stream."""

    def __init__(self, head: bytes, stream: Any):
        self.head, self.stream = head, stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        head, self.head = self.head, b""
        return head + self.stream.read(max(size - len(head), 0) if size >= 0 else -1)


def format_of(path: str) -> str | None:
    """Return the format that the file's name ends with, before a .gz."""
    return FORMATS.get(Path(path.removesuffix(".gz")).suffix.lower())


def _value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of categories, otherwise the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _json_object(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"line {number}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f'line {number}: expected a JSON object, such as {{"x": 1}}')
    return row


def _json_column(values: list[Any]) -> pa.Array:
    """Return the values as a column. Values without a common type become text, from which numbers can be parsed."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        is_text = [each is None or isinstance(each, str) for each in values]
        texts = [each if keep else orjson.dumps(each).decode() for each, keep in zip(values, is_text, strict=True)]
        return pa.array(texts, pa.string())
