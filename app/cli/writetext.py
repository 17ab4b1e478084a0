"""Rows as text: CSV and JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from app.cli.columns import Column, flat
from app.errors import InvalidInput

# Cells that a reader of CSV would take for more than one.
UNSAFE = re.compile(rb'[",\r\n]')


class Csv:
    """A line a row."""

    def names(self, columns: Sequence[Column]) -> list[str]:
        return [each.name for each in flat(columns)]

    def header(self, names: Sequence[str]) -> bytes:
        return b",".join(quoted([name.encode() for name in names])) + b"\n"

    def encode(self, columns: Sequence[Column]) -> bytes:
        cells = [csv_cells(each) for each in flat(columns)]
        return b"\n".join([*map(b",".join, zip(*cells, strict=True)), b""])


def csv_cells(column: Column) -> list[bytes]:
    array = column.values()
    if array.dtype.kind != "O":
        cells = number_cells(array)
        if array.dtype.kind == "f":
            for index in np.flatnonzero(~np.isfinite(array)):
                cells[index] = b"" if np.isnan(array[index]) else b"inf" if array[index] > 0 else b"-inf"
        return cells
    values = array.tolist()
    column.texts(values)
    cells = quoted([value if isinstance(value, bytes) else plain_text(value).encode() for value in values])
    return [b"" if value is None else cell for value, cell in zip(values, cells, strict=True)]


def quoted(cells: list[bytes]) -> list[bytes]:
    """The cells with quotes where they are needed, and around empty text, which would else be a gap."""
    if b"" not in cells and not UNSAFE.search(b"x".join(cells)):
        return cells
    return [b'"%b"' % cell.replace(b'"', b'""') if not cell or UNSAFE.search(cell) else cell for cell in cells]


def plain_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json_text(value)


def json_text(value: Any) -> str:
    """orjson is quicker, and has no integers beyond 64 bits."""
    if isinstance(value, str):
        return orjson.dumps(value).decode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
    array = column.values()
    if array.dtype.kind == "O":
        cells = array if array.ndim == 1 else map(np.ndarray.tolist, array)
        return [json_text(decoded(cell, column)).encode() for cell in cells]
    if array.dtype.kind == "f" and np.isinf(array).any():
        raise InvalidInput(f'column "{column.name}": JSON has no infinity; --output-format csv, parquet or npz has')
    if array.ndim == 1:
        return number_cells(array)
    return [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in np.ascontiguousarray(array)]


def decoded(value: Any, column: Column) -> Any:
    if isinstance(value, list):
        return [decoded(each, column) for each in value]
    return column.texts([value])[0] if isinstance(value, bytes) else value
