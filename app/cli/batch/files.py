"""Input and output files, read and written as Arrow tables of limited size."""

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
CSV_BLOCK_BYTES = 2**21  # maximum size of a row
GZIP_MAGIC = b"\x1f\x8b"
# The column of an NPY file, and the columns for files that are sent unchanged.
ARRAY, CONTENTS, FILE = "array", "<contents>", "file"


class Source:
    """The rows of one file, or of files with one row each. `head` is the first table, `tables` yields the others.

    The file is open until `tables` ends or is closed. Raise Failure if the file cannot be read or is empty.
    """

    def __init__(
        self,
        paths: Sequence[str],
        kind: str | None,
        batch_rows: int,
        delimiter: str,
        na_value: str | None,
    ):
        self.paths, self.path, self.delimiter, self.na_value = paths, paths[0], delimiter, na_value
        self.total: int | None = None
        self.format = kind or format_of(self.path) or ""
        if self.format not in FORMATS:
            raise Failure(
                f"{self.path}: unknown format. Use --format with one of {', '.join(FORMATS)}."
            )
        if len(paths) > 1 and self.format != "image":
            raise Failure(
                f"{paths[1]}: too many files. Expected one file of rows, or several files for a BYTES input."
            )
        self.batch_rows = 1 if self.format == "image" else batch_rows
        self.tables = self._read()
        self.head: pa.Table = next(self.tables, None)
        if not self.head:
            raise Failure(f"{self.path}: no rows")

    def batches(self) -> Iterator[pa.Table]:
        """Yield tables of `batch_rows` rows. The last table can be shorter."""
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
        """Yield the tables. If a file cannot be read, raise Failure with its name."""
        reader = getattr(self, f"_read_{self.format}")
        # A multiple of the batch size: chunks of JSON Lines can have different types, so a batch must not span two.
        rows = self.batch_rows * max(1, CHUNK_ROWS // self.batch_rows)
        try:
            yield from reader(rows)
        except (OSError, EOFError, ValueError, pa.ArrowException) as error:
            name = getattr(error, "filename", None) or self.path
            raise Failure(f"{name}: {getattr(error, 'strerror', None) or error}") from None

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the file. Decompress gzip."""
        raw: Any = sys.stdin.buffer if self.path == "-" else io.FileIO(self.path)
        with io.BufferedReader(raw) as file:
            yield gzip.open(file) if file.peek(2).startswith(GZIP_MAGIC) else file  # noqa: SIM115

    def _read_csv(self, rows: int) -> Iterator[pa.Table]:
        """Yield text columns. Values are converted later, to the datatype of their input."""
        with self._open() as stream:
            header = next((line for line in stream if line.strip()), b"").decode(
                "utf-8-sig", "replace"
            )
            names = [
                name.strip() for name in next(csv.reader([header], delimiter=self.delimiter), ())
            ]
            if len(set(names)) < max(len(names), 1):
                raise ValueError("invalid header. Expected a different name for each column")
            if not stream.peek(1):
                return
            parsing = arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
            parsing.ignore_empty_lines = len(names) > 1  # with one column, an empty line is a row
            conversion = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
            conversion.null_values, conversion.strings_can_be_null = (
                [self.na_value or ""],
                self.na_value is not None,
            )
            reading = arrow_csv.ReadOptions(
                column_names=names, block_size=CSV_BLOCK_BYTES, use_threads=False
            )
            for batch in arrow_csv.open_csv(
                pa.PythonFile(stream, "r"), reading, parsing, conversion
            ):
                yield pa.Table.from_batches([batch])

    def _read_jsonl(self, rows: int) -> Iterator[pa.Table]:
        """Yield columns for the members in the first chunk. The values of a member must have a common type."""
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
    """An output file. A regular file is named FILE.part until `finish`. `-` is stdout.

    The first response determines the column types of CSV and Parquet. Raise UsageError if the file does not support the
    format, or if it is one of the `inputs`.
    """

    def __init__(self, path: Path, kind: str | None, inputs: Sequence[str], delimiter: str = ","):
        self.path, self.delimiter, self.is_stdout = path, delimiter, str(path) == "-"
        self.format = kind or format_of(str(path)) or ("csv" if self.is_stdout else "")
        if self.format not in OUTPUT_FORMATS:
            known = ", ".join(OUTPUT_FORMATS)
            raise click.UsageError(
                f"{path}: unknown format. Use --output-format with one of {known}."
            )
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
        """Encode the kept columns and `columns` for write(). Several threads can call this method concurrently.

        Raise InvalidInput if the format cannot represent a value, and Failure if two columns have the same name.
        """
        if twice := [name for name in kept.column_names if name in columns]:
            raise Failure(
                f'--keep-columns: "{twice[0]}" is also an output. Rename the column in the file.'
            )
        try:
            table = pa.table({**{name: kept[name] for name in kept.column_names}, **columns})
            if self.format == "jsonl":
                return b"".join(orjson.dumps(row, default=str) + b"\n" for row in table.to_pylist())
            return table
        except pa.ArrowException as error:
            raise InvalidInput(str(error)) from None

    def write(self, rows: Any) -> None:
        """Write the result of encode(). Raise InvalidInput if its column types differ from those of the file."""
        if self.file is None:
            self.file = sys.stdout.buffer if self.is_stdout else open(self.part or self.path, "wb")  # noqa: SIM115
        if self.format == "jsonl":
            self.file.write(rows)
            return
        if self.writer is None:
            types = {
                each.name: pa.string() if pa.types.is_null(each.type) else each.type
                for each in rows.schema
            }
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
        """Close the file. It contains the rows written so far."""
        if self.file is None or self.file.closed:
            return
        with (
            nullcontext() if self.is_stdout else self.file
        ):  # close the file even if the disk is full
            if self.writer is not None:
                self.writer.close()
            self.file.flush()

    def finish(self) -> None:
        """Close the file and rename it to its final name."""
        self.close()
        if self.file and self.part:
            os.replace(self.part, self.path)
