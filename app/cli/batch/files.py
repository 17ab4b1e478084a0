"""Read and write files of rows, as Arrow tables of limited size."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from app.cli.batch.formats import FORMATS, OUTPUT_FORMATS, format_of
from app.cli.common import Failure
from app.protocol.errors import InvalidInput

CHUNK_ROWS = 2**14
CSV_BLOCK_BYTES = 2**21  # a row must fit into it
GZIP_MAGIC = b"\x1f\x8b"
# The column of an NPY file, and the columns of files that are sent as they are.
ARRAY, CONTENTS, FILE = "array", "<contents>", "file"


class Source:
    """The rows of a file, or of files with one row each. `head` is the first table, and `tables` are the others.

    The file stays open until `tables` ends or is closed. Raise Failure if the file cannot be read or is empty.
    """

    def __init__(self, paths: Sequence[str], kind: str | None, batch_rows: int, delimiter: str, na_value: str | None):
        self.paths, self.path, self.delimiter, self.na_value = paths, paths[0], delimiter, na_value
        self.total: int | None = None
        self.format = kind or format_of(self.path) or ""
        if self.format not in FORMATS:
            raise Failure(f"{self.path}: unknown format. Use --format with one of {', '.join(FORMATS)}.")
        if len(paths) > 1 and self.format != "image":
            raise Failure(f"{paths[1]}: too many files. Expected one file of rows, or several files for a BYTES input.")
        self.batch_rows = 1 if self.format == "image" else batch_rows
        self.tables = self._read()
        self.head: pa.Table = next(self.tables, None)
        if not self.head:
            raise Failure(f"{self.path}: no rows")

    def batches(self) -> Iterator[pa.Table]:
        """Yield tables of `batch_rows` rows. The last one may have fewer."""
        rest = self.head.slice(0, 0)
        for table in chain([self.head], self.tables):
            table = pa.concat_tables([rest, table]) if len(rest) else table
            whole = len(table) - len(table) % self.batch_rows
            for start in range(0, whole, self.batch_rows):
                yield table.slice(start, self.batch_rows)
            rest = table.slice(whole)
        if len(rest):
            yield rest

    def _read(self) -> Generator[pa.Table, None, None]:
        """Yield the tables. Raise Failure with the file's name if one cannot be read."""
        reader = getattr(self, f"_read_{self.format}")
        # A multiple of the batch, so that no batch has rows of two chunks of JSON Lines, whose types may differ.
        rows = self.batch_rows * max(1, CHUNK_ROWS // self.batch_rows)
        try:
            yield from reader(rows)
        except (OSError, EOFError, ValueError, pa.ArrowException) as error:
            name = getattr(error, "filename", None) or self.path
            raise Failure(f"{name}: {getattr(error, 'strerror', None) or error}") from None

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the file, and decompress it if it is gzip."""
        raw: Any = sys.stdin.buffer if self.path == "-" else io.FileIO(self.path)
        with io.BufferedReader(raw) as file:
            yield gzip.open(file) if file.peek(2).startswith(GZIP_MAGIC) else file  # noqa: SIM115

    def _read_csv(self, rows: int) -> Iterator[pa.Table]:
        """Yield columns of text: no value is altered before it is known what it is for."""
        with self._open() as stream:
            header = next((line for line in stream if line.strip()), b"").decode("utf-8-sig", "replace")
            names = [name.strip() for name in next(csv.reader([header], delimiter=self.delimiter), ())]
            if len(set(names)) < max(len(names), 1):
                raise ValueError("invalid header. Expected a different name for each column")
            if not stream.peek(1):
                return
            parsing = arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
            parsing.ignore_empty_lines = len(names) > 1  # in a single column, an empty line is a row
            conversion = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
            conversion.null_values, conversion.strings_can_be_null = [self.na_value or ""], self.na_value is not None
            reading = arrow_csv.ReadOptions(column_names=names, block_size=CSV_BLOCK_BYTES, use_threads=False)
            for batch in arrow_csv.open_csv(pa.PythonFile(stream, "r"), reading, parsing, conversion):
                yield pa.Table.from_batches([batch])

    def _read_jsonl(self, rows: int) -> Iterator[pa.Table]:
        """Yield the members of the first chunk's objects. Their values need a common type."""
        names: list[str] = []
        with self._open() as stream:
            objects = (orjson.loads(line) for line in stream if line.strip())
            while chunk := list(islice(objects, rows)):
                if not all(isinstance(row, dict) for row in chunk):
                    raise ValueError('expected a JSON object in each line, such as {"x": 1}')
                names = names or list(dict.fromkeys(chain.from_iterable(chunk)))
                yield pa.table({name: [row.get(name) for row in chunk] for name in names})

    def _read_parquet(self, rows: int) -> Iterator[pa.Table]:
        with pq.ParquetFile(self.path) as file:
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


class Output:
    """A file of results. A regular file is named FILE.part until `finish`. The name `-` is stdout.

    The columns of CSV and Parquet have the types of the first response. Raise UsageError if the file cannot have the
    format, or if it is one of the `inputs`.
    """

    def __init__(self, path: Path, kind: str | None, inputs: Sequence[str], delimiter: str = ","):
        self.path, self.delimiter, self.is_stdout = path, delimiter, str(path) == "-"
        self.format = kind or format_of(str(path)) or ("csv" if self.is_stdout else "")
        if self.format not in OUTPUT_FORMATS:
            known = ", ".join(OUTPUT_FORMATS)
            raise click.UsageError(f"{path}: unknown format. Use --output-format with one of {known}.")
        is_regular = not self.is_stdout and (path.is_file() or not path.exists())
        self.part = path.with_name(f"{path.name}.part") if is_regular else None
        if self.format == "parquet" and not self.part:
            raise click.UsageError("Parquet needs a file. Add --output FILE.")
        if any(path.exists() and path.samefile(name) for name in inputs if Path(name).exists()):
            raise click.UsageError(f"{path} is an input. Use another --output.")
        self.file: Any = None
        self.schema = pa.schema([])
        self.writer: Any = None

    def encode(self, kept: pa.Table, columns: Mapping[str, pa.Array]) -> Any:
        """Return the rows of the kept columns and of `columns`, ready to write. Several threads may call this.

        Raise InvalidInput if the format has no form for a value, and Failure if two columns have the same name.
        """
        if twice := [name for name in kept.column_names if name in columns]:
            raise Failure(f'--keep-columns: "{twice[0]}" is also an output. Rename the column in the file.')
        try:
            table = pa.table({**{name: kept[name] for name in kept.column_names}, **columns})
            if self.format == "jsonl":
                return b"".join(orjson.dumps(row, default=str) + b"\n" for row in table.to_pylist())
            return table
        except pa.ArrowException as error:
            raise InvalidInput(str(error)) from None

    def write(self, rows: Any) -> None:
        """Write what `encode` returned. Raise InvalidInput if the types of its columns do not fit the file."""
        if self.file is None:
            self.file = sys.stdout.buffer if self.is_stdout else open(self.part or self.path, "wb")  # noqa: SIM115
        if self.format == "jsonl":
            self.file.write(rows)
            return
        if self.writer is None:
            types = {each.name: pa.string() if pa.types.is_null(each.type) else each.type for each in rows.schema}
            self.schema = pa.schema(types)
            if self.format == "parquet":
                self.writer = pq.ParquetWriter(self.file, self.schema)
            else:
                options = arrow_csv.WriteOptions(delimiter=self.delimiter)
                self.writer = arrow_csv.CSVWriter(self.file, self.schema, write_options=options)
        try:
            self.writer.write_table(rows.cast(self.schema))
        except (pa.ArrowException, ValueError) as error:
            raise InvalidInput("the response has columns of another type", got=str(error)) from None

    def close(self) -> None:
        """Close the file, with the rows that were written."""
        if self.file is None or self.file.closed:
            return
        with nullcontext() if self.is_stdout else self.file:  # it is closed even if the disk is full
            if self.writer is not None:
                self.writer.close()
            self.file.flush()

    def finish(self) -> None:
        """Close the file and give it its name."""
        self.close()
        if self.file and self.part:
            os.replace(self.part, self.path)
