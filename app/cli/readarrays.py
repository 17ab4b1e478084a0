"""Tables of arrays and bytes: Parquet, NPY, NPZ and images."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from app.cli.common import Failure
from app.cli.sources import File, read_fully
from app.cli.tables import READ_ROWS, Rows, Table, check_pyarrow
from app.datatypes import object_array

# So many bytes of images or arrays are read at once, where rows are large.
IMAGE_BYTES, ARRAY_BYTES = 2**23, 2**24


class ParquetTable(Table):
    def __init__(self, path: str):
        check_pyarrow()
        import pyarrow as pa
        import pyarrow.parquet as pq

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
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return object_array(column.to_pylist())
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        from app.codecs.frames import cells

        # moments that are all missing would not be told from other gaps
        is_known = column.null_count < len(column)
        return object_array(cells(column.to_pandas())) if is_known else np.full(len(column), "NaT", "M8[us]")
    if pa.types.is_temporal(column.type):  # a time of day, or a duration
        return object_array([None if each is None else str(each) for each in column.to_pylist()])
    return column.to_numpy(zero_copy_only=False)


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

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape[1:] for name, (shape, _, _) in self.heads.items()}

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
    step = max(1, min(READ_ROWS, ARRAY_BYTES // max(width, 1)))
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
