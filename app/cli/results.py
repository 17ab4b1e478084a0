"""Answers as rows of a file: CSV, JSON lines, Parquet, NPY and NPZ."""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from app.cli.common import Failure
from app.cli.senders import has_binary_form
from app.cli.tables import ABSENT
from app.codecs.arrays import datatype_name
from app.codecs.strings import text_list
from app.datatypes import bytes_array, datatype_of, object_array
from app.envelope import HEADER_LENGTH
from app.errors import InvalidInput
from app.jsontensor import to_json
from app.types import InferenceResponse, MetadataTensor, ResponseOutput

# Cells that a reader of CSV would take for more than one.
UNSAFE = re.compile(rb'[",\r\n]')
FRAME = struct.Struct("<QQ")
GROUP_ROWS = 2**16


class Column:
    """One column of the output: what a row has of a tensor that was an answer, or a kept column."""

    def __init__(self, name: str, array: np.ndarray, content_type: str | None = None):
        self.name, self.array, self.content_type = name, array, content_type

    def tensor(self) -> ResponseOutput:
        parameters = {"content_type": self.content_type} if self.content_type else {}
        return ResponseOutput.of(self.name, datatype_name(self.array.dtype), self.array, parameters)


def declared(outputs: Sequence[MetadataTensor], kept: Sequence[str]) -> list[Column]:
    """The columns of no rows, as METADATA declares the outputs."""
    columns = [Column(name, object_array([]), "str") for name in kept]
    for each in outputs:
        shape = (0, *(max(size, 1) for size in each.shape[1:]))
        columns.append(Column(each.name, np.empty(shape, datatype_of(each.datatype).dtype), each.content_type))
    return columns


def columns_of(response: InferenceResponse, kept: Sequence[Column], rows: int) -> list[Column]:
    """The kept columns, then the outputs, each of which must have as many rows; InvalidInput where one has not."""
    columns = list(kept)
    for output in response.outputs:
        if not output.shape or output.shape[0] != rows:
            raise InvalidInput(f'output "{output.name}" has shape {output.shape} for {rows} rows: it has none for each')
        columns.append(Column(output.name, output.data, output.parameters.get("content_type")))
    return columns


def flat(columns: Sequence[Column]) -> list[Column]:
    """The same with a column for each value of a row: of `name` with three of them, name_0, name_1 and name_2."""
    found: list[Column] = []
    for column in columns:
        width = math.prod(column.array.shape[1:])
        array = column.array.reshape(len(column.array), width)
        for index in range(width):
            name = column.name if width == 1 else f"{column.name}_{index}"
            found.append(Column(name, array[:, index], column.content_type))
    return found


class Csv:
    """A line a row."""

    def names(self, columns: Sequence[Column]) -> list[str]:
        return [each.name for each in flat(columns)]

    def header(self, names: Sequence[str]) -> bytes:
        return b",".join(quoted([name.encode() for name in names])) + b"\n"

    def encode(self, columns: Sequence[Column]) -> bytes:
        cells = [csv_cells(each.array) for each in flat(columns)]
        return b"\n".join([*map(b",".join, zip(*cells, strict=True)), b""])


def csv_cells(array: np.ndarray) -> list[bytes]:
    if array.dtype.kind != "O":
        cells = number_cells(array)
        if array.dtype.kind == "f":
            for index in np.flatnonzero(~np.isfinite(array)):
                cells[index] = b"" if np.isnan(array[index]) else b"inf" if array[index] > 0 else b"-inf"
        return cells
    values = array.tolist()
    text_list(values)
    cells = quoted([value if isinstance(value, bytes) else plain_text(value).encode() for value in values])
    return [b"" if value is None else cell for value, cell in zip(values, cells, strict=True)]


def quoted(cells: list[bytes]) -> list[bytes]:
    """The cells with quotes where they are needed, and around empty text, which would else be a gap."""
    if b"" not in cells and not UNSAFE.search(b"x".join(cells)):
        return cells
    return [b'"%b"' % cell.replace(b'"', b'""') if not cell or UNSAFE.search(cell) else cell for cell in cells]


def plain_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()


def number_cells(array: np.ndarray) -> list[bytes]:
    """Numbers in their shortest form, each for itself; orjson is many times as quick as Python here."""
    if not array.size:
        return []
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    return orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


class JsonLines:
    """An object a line; what is a row of an array there is a list."""

    def names(self, columns: Sequence[Column]) -> list[str]:
        return [each.name for each in columns]

    def header(self, names: Sequence[str]) -> bytes:
        return b""

    def encode(self, columns: Sequence[Column]) -> bytes:
        members = [[orjson.dumps(each.name) + b":" + cell for cell in json_cells(each)] for each in columns]
        return b"".join(b"{%b}\n" % b",".join(row) for row in zip(*members, strict=True))


def json_cells(column: Column) -> list[bytes]:
    """Raises InvalidInput for what JSON cannot say: infinity, and bytes that are no text."""
    array = column.array
    if array.dtype.kind == "O":
        cells = array if array.ndim == 1 else map(np.ndarray.tolist, array)
        return [orjson.dumps(decoded(cell)) for cell in cells]
    to_json(array, datatype_of(datatype_name(array.dtype)))
    if array.ndim == 1:
        return number_cells(array)
    return [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in np.ascontiguousarray(array)]


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return text_list([value])[0] if isinstance(value, bytes) else value


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


def write_parquet(path: Path, pieces: Callable[[], Iterator[list[Column]]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from app.codecs import PandasCodec

    writer, waiting, count = None, [], 0
    try:
        for columns in pieces():
            frame = PandasCodec.decode_response(InferenceResponse([each.tensor() for each in flat(columns)]))
            if writer is None:
                schema = pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
                fields = [field.with_type(pa.string()) if field.type == pa.null() else field for field in schema]
                writer = pq.ParquetWriter(path, pa.schema(fields))
            waiting.append(pa.Table.from_pandas(frame, writer.schema, preserve_index=False))
            count += len(frame)
            if count >= GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting))
                waiting, count = [], 0
        if waiting and writer:
            writer.write_table(pa.concat_tables(waiting))
    except pa.ArrowException as error:
        raise Failure(f"{path}: {error}") from None
    finally:
        if writer:
            writer.close()


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
        dtype = np.promote_types(dtype, array.dtype) if rows else array.dtype
        if rows and array.shape[1:] != shape:
            raise Failure(f'output "{name}": rows of shape {list(array.shape[1:])} and of {list(shape or ())}')
        shape, rows = array.shape[1:], rows + len(array)
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *(shape or ()))}
    np.lib.format.write_array_header_1_0(file, head)
    for array in arrays(name, pieces):
        file.write(array.astype(dtype).tobytes())


def arrays(name: str, pieces: Callable[[], Iterator[list[Column]]]) -> Iterator[np.ndarray]:
    for columns in pieces():
        array = next(each.array for each in columns if each.name == name)
        if array.dtype.kind == "O":
            if None in array.ravel().tolist():
                raise Failure(f'"{name}": an array of text has no form of missing values; Parquet and JSON lines have')
            array = np.array(text_list(array.ravel().tolist()), str).reshape(array.shape)
        yield array


def kept_column(name: str, array: np.ndarray) -> Column:
    """A column of the input as one of the output; InvalidInput for cells that the wire has no form of."""
    if array.dtype.kind in "biuf":
        return Column(name, array)
    cells = [None if cell is ABSENT else cell for cell in array.tolist()]
    if set(map(type, cells)) <= {str, bytes, type(None)}:
        return Column(name, object_array(cells), "str" if bytes not in set(map(type, cells)) else None)
    from app.codecs.frames import encode_column

    _, encoded, content_type = encode_column(object_array(cells))
    return Column(name, bytes_array(encoded) if encoded.dtype.kind == "O" else encoded, content_type)


WRITERS: dict[str, Any] = {
    "csv": Csv(),
    "jsonl": JsonLines(),
    "parquet": Framed(write_parquet),
    "npy": Framed(write_npy),
    "npz": Framed(write_npz),
}
