"""Input and output files, read and written as Arrow tables of limited size."""

import csv
import gzip
import io
import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

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
# The column of an NPY file.
ARRAY = "array"
# The columns for files that are sent unchanged.
CONTENTS = "<contents>"
FILE = "file"

# Rows in the format of the output: bytes of JSON Lines, or a table.
EncodedRows: TypeAlias = bytes | pa.Table


class Source:
    """The rows of one file, or of files with one row each.

    `head` is the first table, `tables` yields the others. `total` is the number of rows, or None if
    it is unknown. The file is open until `tables` ends or is closed. Raise Failure if the file
    cannot be read or is empty.
    """

    def __init__(
        self,
        paths: Sequence[str],
        format_name: str | None,
        batch_rows: int,
        delimiter: str,
        na_value: str | None,
    ):
        self._paths = paths
        self._path = paths[0]
        self._delimiter = delimiter
        self._na_value = na_value
        self.total: int | None = None
        self.format = format_name or format_of(self._path) or ""
        if self.format not in FORMATS:
            known_formats = ", ".join(FORMATS)
            raise Failure(
                f"{self._path}: unknown format. Use --format with one of {known_formats}."
            )
        if len(paths) > 1 and self.format != "image":
            raise Failure(
                f"{paths[1]}: too many files. "
                "Expected one file of rows, or several files for a BYTES input."
            )
        self._batch_rows = 1 if self.format == "image" else batch_rows

        self.tables = self._read()
        self.head: pa.Table = next(self.tables, None)
        if not self.head:
            raise Failure(f"{self._path}: no rows")

    def batches(self) -> Iterator[pa.Table]:
        """Yield tables of `batch_rows` rows. The last table can be shorter."""
        rest = self.head.slice(0, 0)
        for table in chain([self.head], self.tables):
            if len(rest):
                table = pa.concat_tables([rest, table])
            end = len(table) - len(table) % self._batch_rows
            for start in range(0, end, self._batch_rows):
                yield table.slice(start, self._batch_rows)
            rest = table.slice(end)
        if len(rest):
            yield rest

    def _read(self) -> Generator[pa.Table, None, None]:
        """Yield the tables. If a file cannot be read, raise Failure with its name."""
        readers = {
            "csv": self._read_csv,
            "jsonl": self._read_jsonl,
            "parquet": self._read_parquet,
            "npy": self._read_npy,
            "image": self._read_images,
        }
        # A multiple of the batch size: chunks of JSON Lines can have different types, so a batch
        # must not span two.
        batch_count = max(1, CHUNK_ROWS // self._batch_rows)
        chunk_rows = batch_count * self._batch_rows
        try:
            yield from readers[self.format](chunk_rows)
        except (OSError, EOFError, ValueError, pa.ArrowException) as error:
            name = getattr(error, "filename", None) or self._path
            reason = getattr(error, "strerror", None) or error
            raise Failure(f"{name}: {reason}") from None

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the file. Decompress gzip."""
        raw: Any = sys.stdin.buffer if self._path == "-" else io.FileIO(self._path)
        with io.BufferedReader(raw) as file:
            if file.peek(2).startswith(GZIP_MAGIC):
                yield gzip.open(file)  # noqa: SIM115
            else:
                yield file

    def _read_csv(self, chunk_rows: int) -> Iterator[pa.Table]:
        """Yield text columns. Values are converted later, to the datatype of their input."""
        with self._open() as stream:
            names = _read_csv_header(stream, self._delimiter)
            has_rows = bool(stream.peek(1))
            if not has_rows:
                return
            reading = arrow_csv.ReadOptions(
                column_names=names, block_size=CSV_BLOCK_BYTES, use_threads=False
            )
            parsing = arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(names) > 1,  # with one column, an empty line is a row
            )
            conversion = arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[self._na_value or ""],
                strings_can_be_null=self._na_value is not None,
            )
            file = pa.PythonFile(stream, "r")
            for batch in arrow_csv.open_csv(file, reading, parsing, conversion):
                yield pa.Table.from_batches([batch])

    def _read_jsonl(self, chunk_rows: int) -> Iterator[pa.Table]:
        """Yield columns for the members in the first chunk. The values of a member must have a
        common type.
        """
        names: list[str] = []
        with self._open() as stream:
            members = (orjson.loads(line) for line in stream if line.strip())
            while rows := list(islice(members, chunk_rows)):
                for row in rows:
                    if not isinstance(row, dict):
                        raise ValueError('expected a JSON object in each line, such as {"x": 1}')
                if not names:
                    names = list(dict.fromkeys(chain.from_iterable(rows)))
                columns = {}
                for name in names:
                    columns[name] = [row.get(name) for row in rows]
                yield pa.table(columns)

    def _read_parquet(self, chunk_rows: int) -> Iterator[pa.Table]:
        with pq.ParquetFile(self._path) as file:
            self.total = file.metadata.num_rows
            for batch in file.iter_batches(chunk_rows):
                yield pa.Table.from_batches([batch])

    def _read_npy(self, chunk_rows: int) -> Iterator[pa.Table]:
        """Yield one column. A row of an array with several dimensions is a nested list."""
        array = np.atleast_1d(np.load(self._path, mmap_mode="r"))
        self.total = len(array)
        for start in range(0, len(array), chunk_rows):
            column = pa.array(array[start : start + chunk_rows].ravel())
            for size in reversed(array.shape[1:]):
                column = pa.FixedSizeListArray.from_arrays(column, size)
            yield pa.table({ARRAY: column})

    def _read_images(self, chunk_rows: int) -> Iterator[pa.Table]:
        """Yield one row per file: its contents and its name."""
        self.total = len(self._paths)
        for path in self._paths:
            contents = Path(path).read_bytes()
            yield pa.table({CONTENTS: [contents], FILE: [path]})


def _read_csv_header(stream: Any, delimiter: str) -> list[str]:
    """Read lines until one is not empty. Return its names. Raise ValueError for duplicate names."""
    lines = (line for line in stream if line.strip())
    header = next(lines, b"").decode("utf-8-sig", "replace")
    cells = next(csv.reader([header], delimiter=delimiter), [])
    names = [cell.strip() for cell in cells]
    if not names or len(set(names)) < len(names):
        raise ValueError("invalid header. Expected a different name for each column")
    return names


class Output:
    """An output file. A regular file is named FILE.part until `finish`. `-` is stdout.

    The first response determines the column types of CSV and Parquet. Raise UsageError if the file
    does not support the format, or if it is one of the `inputs`.
    """

    def __init__(
        self,
        path: Path,
        format_name: str | None,
        inputs: Sequence[str],
        delimiter: str = ",",
    ):
        self.path = path
        self._delimiter = delimiter
        self._is_stdout = str(path) == "-"
        self.format = format_name or format_of(str(path)) or ""
        if self._is_stdout and not self.format:
            self.format = "csv"
        if self.format not in OUTPUT_FORMATS:
            known_formats = ", ".join(OUTPUT_FORMATS)
            raise click.UsageError(
                f"{path}: unknown format. Use --output-format with one of {known_formats}."
            )

        self.part: Path | None = None
        is_regular = path.is_file() or not path.exists()
        if is_regular and not self._is_stdout:
            self.part = path.with_name(f"{path.name}.part")
        if self.format == "parquet" and not self.part:
            raise click.UsageError("Parquet needs a file. Add --output FILE.")
        for name in inputs:
            both_exist = path.exists() and Path(name).exists()
            if both_exist and path.samefile(name):
                raise click.UsageError(f"{path} is an input. Use another --output.")

        self._file: Any = None
        self._schema = pa.schema([])
        self._writer: Any = None

    def encode(self, kept: pa.Table, columns: Mapping[str, pa.Array]) -> EncodedRows:
        """Encode the kept columns and `columns` for write(). Several threads can call this method
        concurrently.

        Raise InvalidInput if the format cannot represent a value, and Failure if two columns have
        the same name.
        """
        all_columns = {}
        for name in kept.column_names:
            if name in columns:
                raise Failure(
                    f'--keep-columns: "{name}" is also an output. Rename the column in the file.'
                )
            all_columns[name] = kept[name]
        all_columns.update(columns)
        try:
            table = pa.table(all_columns)
            if self.format != "jsonl":
                return table
            lines = [orjson.dumps(row, default=str) + b"\n" for row in table.to_pylist()]
            return b"".join(lines)
        except pa.ArrowException as error:
            raise InvalidInput(str(error)) from None

    def write(self, rows: EncodedRows) -> None:
        """Write the result of encode().

        Raise InvalidInput if its column types differ from those of the file.
        """
        if self._file is None:
            self._open()
        if isinstance(rows, bytes):
            self._file.write(rows)
            return
        if self._writer is None:
            self._create_writer(rows.schema)
        try:
            self._writer.write_table(rows.cast(self._schema))
        except (pa.ArrowException, ValueError) as error:
            raise InvalidInput("the response has columns of another type", got=str(error)) from None

    def _open(self) -> None:
        if self._is_stdout:
            self._file = sys.stdout.buffer
        else:
            self._file = open(self.part or self.path, "wb")  # noqa: SIM115

    def _create_writer(self, schema: pa.Schema) -> None:
        """Create a writer of tables with this schema. Columns without values become text."""
        types = {}
        for column in schema:
            types[column.name] = column.type
            if pa.types.is_null(column.type):
                types[column.name] = pa.string()
        self._schema = pa.schema(types)
        if self.format == "parquet":
            self._writer = pq.ParquetWriter(self._file, self._schema)
        else:
            options = arrow_csv.WriteOptions(delimiter=self._delimiter)
            self._writer = arrow_csv.CSVWriter(self._file, self._schema, write_options=options)

    def close(self) -> None:
        """Close the file. It contains the rows written so far."""
        if self._file is None or self._file.closed:
            return
        try:
            if self._writer is not None:
                self._writer.close()
            self._file.flush()
        finally:
            # Close the file even if the disk is full.
            if not self._is_stdout:
                self._file.close()

    def finish(self) -> None:
        """Close the file and rename it to its final name."""
        self.close()
        if self._file and self.part:
            os.replace(self.part, self.path)
