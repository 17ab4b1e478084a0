"""Rows as arrays: Parquet, NPY and NPZ, which are made when all rows are there."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from app.cli.columns import Column, flat
from app.cli.common import Failure
from app.cli.senders import has_binary_form
from app.envelope import HEADER_LENGTH
from app.errors import InvalidInput
from app.types import InferenceResponse

FRAME = struct.Struct("<QQ")
GROUP_ROWS = 2**16


class Framed:
    """Answers as they came, for the kinds of files that are made when all rows are there."""

    def __init__(self, write: Callable[[Path, Callable[[], Iterator[list[Column]]]], None]):
        self.write = write

    def names(self, columns: Sequence[Column]) -> list[str]:
        return [each.name for each in columns]

    def header(self, names: Sequence[str]) -> bytes:
        return b""

    def encode(self, columns: Sequence[Column]) -> bytes:
        tensors = [each.tensor() for each in columns]
        body, headers = InferenceResponse(tensors).to_http(
            {each.name for each in tensors if has_binary_form(each.data)}
        )
        return FRAME.pack(int(headers.get(HEADER_LENGTH, len(body))), len(body)) + body


def read_frames(file: BinaryIO, ranges: Iterable[tuple[int, int]]) -> Iterator[list[Column]]:
    """The columns of each frame in the ranges (offset, length) of the file."""
    for offset, length in ranges:
        file.seek(offset)
        while file.tell() < offset + length:
            head, size = FRAME.unpack(file.read(FRAME.size))
            response = InferenceResponse.from_http(file.read(size), {HEADER_LENGTH: str(head)})
            yield [Column(each.name, each.data, each.parameters.get("content_type")) for each in response.outputs]


def as_text(writer: Any) -> Framed:
    """The lines of `writer`, of answers that were kept as they came."""

    def write(path: Path, pieces: Callable[[], Iterator[list[Column]]]) -> None:
        with path.open("wb") as file:
            for number, columns in enumerate(pieces()):
                file.write(b"" if number else writer.header(writer.names(columns)))
                file.write(writer.encode(columns))

    return Framed(write)


def write_parquet(path: Path, pieces: Callable[[], Iterator[list[Column]]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = one_schema(pieces())
        with pq.ParquetWriter(path, schema) as writer:
            waiting, count = [], 0
            for columns in pieces():
                waiting.append(arrow_table(flat(columns), schema))
                count += len(waiting[-1])
                if count >= GROUP_ROWS:
                    writer.write_table(pa.concat_tables(waiting))
                    waiting, count = [], 0
            if waiting:
                writer.write_table(pa.concat_tables(waiting))
    except pa.ArrowException as error:
        raise Failure(str(error)) from None


def one_schema(pieces: Iterator[list[Column]]) -> Any:
    """The types that hold all pieces' values; ArrowException where there is none."""
    import pyarrow as pa

    first = arrow_table(flat(next(pieces)))
    schema = sure_types(first)
    for columns in pieces:
        if not any(each.array.dtype.kind == "O" for each in columns):
            break
        varying = [each for each in flat(columns) if each.content_type in ("pd_json", "datetime")]
        schema = pa.unify_schemas([schema, sure_types(arrow_table(varying))], promote_options="permissive")
    known = zip(schema, first.schema, strict=True)
    fields = [each.with_type(other.type) if each.type == pa.null() else each for each, other in known]
    return pa.schema([each.with_type(pa.string()) if each.type == pa.null() else each for each in fields])


def sure_types(table: Any) -> Any:
    """The table's schema; moments that are all missing may yet have an offset, or none."""
    import pyarrow as pa

    gaps = [len(column) == column.null_count and pa.types.is_timestamp(column.type) for column in table.columns]
    return pa.schema([each.with_type(pa.null()) if gap else each for each, gap in zip(table.schema, gaps, strict=True)])


def arrow_table(columns: Sequence[Column], schema: Any = None) -> Any:
    """The columns as Arrow has them, with the types of `schema` where it is given."""
    import pyarrow as pa

    from app.codecs import PandasCodec

    frame = PandasCodec.decode_response(InferenceResponse([each.tensor() for each in columns]))
    arrays = {}
    for name, series in frame.items():
        try:
            arrays[name] = pa.array(series, schema and schema.field(name).type, from_pandas=True)
        except (pa.ArrowException, OverflowError) as error:
            raise Failure(f'column "{name}": {error}') from None
    return pa.table(arrays)


def write_npy(path: Path, pieces: Callable[[], Iterator[list[Column]]]) -> None:
    with path.open("wb") as file:
        for name in array_names(pieces)[:1]:
            write_array(file, name, pieces)


def write_npz(path: Path, pieces: Callable[[], Iterator[list[Column]]]) -> None:
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name in array_names(pieces):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                write_array(file, name, pieces)  # type: ignore[arg-type]


def array_names(pieces: Callable[[], Iterator[list[Column]]]) -> list[str]:
    return [each.name for each in next(pieces(), [])]


def write_array(file: BinaryIO, name: str, pieces: Callable[[], Iterator[list[Column]]]) -> None:
    """The rows of one column as numpy's format has it, which begins with how many they are."""
    rows, dtype, shape = 0, np.dtype("u1"), None
    for array in arrays(name, pieces):
        if rows and array.shape[1:] != shape:
            raise Failure(f'"{name}": rows of shape {list(array.shape[1:])} and of {list(shape or ())}')
        if rows and array.dtype.kind != dtype.kind:
            raise Failure(f'"{name}": rows of {array.dtype} and of {dtype}')
        dtype = np.promote_types(dtype, array.dtype) if rows else array.dtype
        shape, rows = array.shape[1:], rows + len(array)
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *(shape or ()))}
    np.lib.format.write_array_header_1_0(file, head)
    for array in arrays(name, pieces):
        file.write(array.astype(dtype).tobytes())


def arrays(name: str, pieces: Callable[[], Iterator[list[Column]]]) -> Iterator[np.ndarray]:
    for columns in pieces():
        column = next(each for each in columns if each.name == name)
        array = column.values()
        if array.dtype.kind == "O":
            try:
                cells = column.texts(array.ravel().tolist())
            except InvalidInput as error:
                raise Failure(str(error)) from None
            if len(kinds := set(map(type, cells))) > 1 or not kinds <= {str, int, float, bool}:
                raise Failure(f'"{name}": an array has no form of what is missing, mixed or nested; JSON lines have')
            array = np.array(cells, None if kinds else str).reshape(array.shape)
        yield array
