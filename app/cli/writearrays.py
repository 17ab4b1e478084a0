"""Rows as arrays: Parquet, NPY and NPZ, which are made when all rows are there."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from app.cli.columns import Column, flat
from app.cli.common import Failure
from app.cli.senders import has_binary_form
from app.codecs.strings import text_list
from app.envelope import HEADER_LENGTH
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
