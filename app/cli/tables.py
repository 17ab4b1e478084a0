"""Files of rows, read piece by piece: CSV, Parquet, JSON lines, NPY, NPZ and images."""

from __future__ import annotations

import io
import math
import os
import select
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from app.cli import interrupts
from app.cli.common import Failure
from app.datatypes import object_array

FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".npz": "npz",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"), "image"),
}
# So many rows are read at once, and cut into batches: fewer, and pandas takes longer over each.
READ_ROWS = 2**14
HEAD_BYTES, HEAD_ROWS = 2**20, 100
PATIENCE_SECONDS = 0.2
IMAGE_BYTES = 2**23
# What stands for no number in a CSV.
GAPS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
# A cell that a row of JSON lines does not have.
ABSENT = ...

Rows = dict[str, np.ndarray]


class Table:
    """A file's columns: their names, and which of them hold numbers as far as that is known.

    An array that is alone has no name: `columns` is [""]. `total` is the number of rows where the file says it.
    """

    has_names = True
    total: int | None = None

    def __init__(self, columns: Sequence[str], numeric: Sequence[str]):
        self.columns, self.numeric = list(columns), list(numeric)

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        """The rows of these columns, in pieces of at most READ_ROWS; an array each, whose first dimension is rows.

        `columns` says by numpy's letter what each is wanted for: f(loats), which may have gaps, i(ntegers, or
        booleans), or O(bjects), which are not taken for numbers whatever they look like.
        """
        raise NotImplementedError

    def part_read(self) -> float | None:
        """How much of the file is read, 0 to 1, where its rows are not counted."""
        return None

    def close(self) -> None:
        """Lets the files go."""


class File:
    """The file at `path`, or stdin for -; it may be looked into before it is read."""

    def __init__(self, path: str):
        try:
            self.raw: Any = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - for the process
            self.size = Path(path).stat().st_size if path != "-" else 0
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None
        self.name = "stdin" if path == "-" else path
        self.head, self.taken = b"", 0
        self.error: BaseException | None = None
        self.pipe = 0 if path == "-" and has_descriptor(self.raw) else None

    def peek(self) -> bytes:
        """The first bytes, up to the last line that is whole among them, if it is not the first."""
        self.head = read_fully(self, HEAD_BYTES)
        self.taken = 0
        return self.head if len(self.head) < HEAD_BYTES else self.head[: self.head.rfind(b"\n") + 1] or self.head

    def read(self, size: int = -1) -> bytes:
        """Some bytes, none at the end; it keeps the error, which pandas makes one of its own."""
        try:
            interrupts.check()
            if self.head:
                size = len(self.head) if size < 0 else size
                taken, self.head = self.head[:size], self.head[size:]
            else:
                taken = self.take(size)
        except BaseException as error:
            self.error = error
            raise
        self.taken += len(taken)
        return taken

    def take(self, size: int) -> bytes:
        if self.pipe is None:
            return self.raw.read(size)
        while not select.select([self.pipe], [], [], PATIENCE_SECONDS)[0]:
            pass  # a signal just before a read that blocks would not be seen
        return os.read(self.pipe, size if size >= 0 else HEAD_BYTES)

    def readable(self) -> bool:
        return True

    def __iter__(self) -> Iterator[bytes]:
        """Its lines."""
        rest = b""
        while piece := self.read(HEAD_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def part_read(self) -> float | None:
        return min(self.taken / self.size, 1) if self.size else None

    def close(self) -> None:
        if self.name != "stdin":
            self.raw.close()


def has_descriptor(stream: Any) -> bool:
    try:
        return stream.fileno() == 0
    except OSError:
        return False


def read_fully(file: Any, size: int) -> bytes:
    """As many bytes, or as there are."""
    pieces = []
    while size > 0 and (piece := file.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


class CsvTable(Table):
    def __init__(self, file: File, has_names: bool):
        import pandas as pd

        self.file, self.has_names = file, has_names
        head = file.peek()
        if not head.strip():
            super().__init__([], [])
            return
        try:
            with warnings.catch_warnings():  # of rows that are longer than the header
                warnings.simplefilter("error", pd.errors.ParserWarning)
                header = 0 if has_names else None
                sample = pd.read_csv(io.BytesIO(head), header=header, nrows=HEAD_ROWS, index_col=False)
        except (ValueError, pd.errors.ParserWarning) as error:
            raise Failure(f"{file.name}: {error}") from None
        if not has_names:
            sample.columns = [str(number) for number in range(1, len(sample.columns) + 1)]
        numeric = sample.select_dtypes(["number", "bool"]).columns
        super().__init__(list(map(str, sample.columns)), list(map(str, numeric)))

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        import pandas as pd

        if not self.columns:
            return
        try:
            with pd.read_csv(
                self.file,
                header=0 if self.has_names else None,
                names=self.columns,
                usecols=[name for name in self.columns if name in columns],
                dtype={name: object for name, kind in columns.items() if kind == "O"},
                keep_default_na=False,
                na_values={name: GAPS for name, kind in columns.items() if kind == "f"},
                index_col=False,
                low_memory=False,
                chunksize=READ_ROWS,
            ) as pieces:
                for piece in pieces:
                    yield {name: piece[name].to_numpy() for name in piece}
        except ValueError as error:
            raise self.file.error or Failure(f"{self.file.name}: {error}") from None

    def part_read(self) -> float | None:
        return self.file.part_read()

    def close(self) -> None:
        self.file.close()


class JsonLines(Table):
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

    def part_read(self) -> float | None:
        return self.file.part_read()

    def close(self) -> None:
        self.file.close()


class ParquetTable(Table):
    def __init__(self, path: str):
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise Failure("Parquet needs pyarrow: pip install pyarrow") from None
        try:
            self.file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise Failure(f"{path}: {error}") from None
        self.path, self.total, schema = path, self.file.metadata.num_rows, self.file.schema_arrow
        tests = pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal
        numeric = [field.name for field in schema if any(test(field.type) for test in tests)]
        super().__init__(schema.names, numeric)

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        import pyarrow as pa

        try:
            for piece in self.file.iter_batches(READ_ROWS, columns=list(columns)):
                yield {name: arrow_column(piece.column(name)) for name in columns}
        except (OSError, pa.ArrowException) as error:
            raise Failure(f"{self.path}: {error}") from None

    def close(self) -> None:
        self.file.close()


def arrow_column(column: Any) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        return object_array(column.to_pylist())  # as floats, large ones would be others
    array = column.to_numpy(zero_copy_only=False)
    if pa.types.is_temporal(column.type):
        from app.codecs.frames import encode_column

        array = encode_column(column.to_pandas())[1]
    return array


class Arrays(Table):
    """Arrays of numpy's files, by name; their bytes are read as they are needed."""

    def __init__(self, file: File, is_archive: bool):
        self.file = file
        self.members: dict[str, Any] = {"": file}
        try:
            if is_archive:
                self.archive = zipfile.ZipFile(file.raw)
                self.members = {name.removesuffix(".npy"): self.open(name) for name in self.archive.namelist()}
            self.heads = {name: read_head(member) for name, member in self.members.items()}
        except (ValueError, zipfile.BadZipFile) as error:
            raise Failure(f"{file.name}: {error}") from None
        lengths = {name: shape[0] if shape else 1 for name, (shape, _, _) in self.heads.items()}
        if len(set(lengths.values())) > 1:
            each = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise Failure(f"{file.name}: the arrays have different numbers of rows: {each}")
        self.total = next(iter(lengths.values()), 0)
        numeric = [name for name, (_, _, dtype) in self.heads.items() if dtype.kind in "biuf"]
        super().__init__(list(self.members), numeric)

    def open(self, name: str) -> Any:
        return self.archive.open(name)

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        readers = [array_rows(self.members[name], *self.heads[name], self.file.name) for name in columns]
        for pieces in zip(*readers, strict=True):
            yield dict(zip(columns, pieces, strict=True))

    def close(self) -> None:
        self.file.close()


def read_head(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The shape, whether it is in Fortran's order, and the dtype; ValueError for what is no array."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the format is for structured arrays")
    if dtype.hasobject or dtype.names:
        raise ValueError("arrays of objects and structured arrays are not read; numbers and text are")
    return shape, is_fortran and len(shape) > 1, dtype


def array_rows(file: Any, shape: tuple[int, ...], is_fortran: bool, dtype: np.dtype, path: str) -> Iterator[np.ndarray]:
    if is_fortran:  # its rows are all over the file
        whole = np.frombuffer(read_fully(file, math.prod(shape) * dtype.itemsize), dtype).reshape(shape, order="F")
        yield from (whole[start : start + READ_ROWS] for start in range(0, len(whole), READ_ROWS))
        return
    width = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    step = max(1, min(READ_ROWS, 2**24 // max(width, 1)))
    total = shape[0] if shape else 1
    for start in range(0, total, step):
        count = min(step, total - start)
        data = read_fully(file, count * width)
        if len(data) < count * width:
            raise Failure(f"{path}: cut short: it ends within row {start + len(data) // width + 1} of {total}")
        yield np.frombuffer(data, dtype).reshape(count, *shape[1:])


class Images(Table):
    """Files as they are, a row each; their names are the column `file`."""

    def __init__(self, paths: Sequence[str]):
        self.paths, self.total = paths, len(paths)
        super().__init__(["", "file"], [])

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        names: list[str] = []
        images: list[bytes] = []
        size = 0
        for path in self.paths:
            names.append(path)
            file = File(path)
            images.append(file.raw.read())
            file.close()
            size += len(images[-1])
            if size > IMAGE_BYTES:
                yield {"": object_array(images), "file": object_array(names)}
                names, images, size = [], [], 0
        if images:
            yield {"": object_array(images), "file": object_array(names)}


def open_table(paths: Sequence[str], format_name: str | None, has_names: bool = True) -> Table:
    """The table in the files; Failure where there is none, and where several are not images."""
    kinds = {format_name or format_of(path) for path in paths}
    if kinds == {"image"}:
        return Images(paths)
    if len(paths) > 1:
        raise Failure("several files: images only, or one file of rows")
    (kind,), (path,) = kinds, paths
    if path == "-" and kind in ("parquet", "npz"):
        raise Failure(f"{kind} is not read from stdin: its end comes first; give a file")
    if kind == "parquet":
        return ParquetTable(path)
    file = File(path)
    try:
        if kind == "csv":
            return CsvTable(file, has_names)
        return JsonLines(file) if kind == "jsonl" else Arrays(file, is_archive=kind == "npz")
    except BaseException:
        file.close()
        raise


def format_of(path: str) -> str:
    """By the ending of its name; Failure where that says nothing."""
    suffix = Path(path).suffix.lower()
    if path == "-" or suffix not in FORMATS:
        what = "stdin" if path == "-" else path
        raise Failure(f"{what}: which format? --format csv, or one of {', '.join(sorted(set(FORMATS.values())))}")
    return FORMATS[suffix]
