"""Cells of a file as the values of an input."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import date
from typing import Any

import numpy as np

from app.cli.tables import GAPS
from app.codecs import Base64Codec, DatetimeCodec
from app.codecs.frames import encode_column
from app.datatypes import bytes_array, datatype_of, object_array
from app.errors import shorten
from app.types import MetadataTensor

# From here on a float no longer tells an integer from the next.
EXACT = 2**53
TRUTHS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


class CellError(Exception):
    """A cell that will not do, in the row with this index."""

    def __init__(self, row: int, text: str):
        super().__init__(row, text)
        self.row, self.text = row, text


def as_numbers(array: np.ndarray, datatype: str) -> np.ndarray:
    """The column as numbers, or booleans; text that says such passes. Raises CellError for a cell that is none."""
    is_float = datatype.startswith("FP")
    if array.dtype.kind in "OUST":
        array = parsed(array.tolist() if array.ndim == 1 else list(array), datatype)
    if array.dtype.kind == "f" and not is_float:
        gaps = ~np.isfinite(array)
        if gaps.any():
            raise CellError(int(np.argwhere(gaps)[0][0]), f"missing or not finite, which {datatype} has no form of")
        if datatype == "BOOL":
            array = array.astype(np.int64) if (array % 1 == 0).all() else array
        else:
            array = whole(array, datatype)
    if datatype == "BOOL" and array.dtype.kind in "iu" and array.size:
        strays = (array != 0) & (array != 1)
        if strays.any():
            row = np.argwhere(strays)[0]
            raise CellError(int(row[0]), f"expected BOOL, got {array[tuple(row)]}")
        return array.astype(bool)
    is_huge = array.dtype.kind == "O" and set(map(type, array.ravel().tolist())) == {int}  # beyond 64 bits
    if (array.dtype.kind in "iu" or is_huge) and datatype_of(datatype).kind in "iu" and array.size:
        bounds = np.iinfo(datatype_of(datatype).dtype)
        if int(array.min()) < bounds.min or int(array.max()) > bounds.max:
            row = next(each for each in np.ndindex(array.shape) if not bounds.min <= int(array[each]) <= bounds.max)
            raise CellError(int(row[0]), f"{array[tuple(row)]} is out of the range of {datatype}")
    return array.astype(np.float32) if is_float and array.dtype.kind == "b" else array


def whole(array: np.ndarray, datatype: str) -> np.ndarray:
    """Floats as integers; CellError for one that is none, or is too large to be exact."""
    inexact = "; a float of this size is not exact: write the column's numbers without fraction or exponent"
    for strays, advice in ((array % 1 != 0, ""), (np.abs(array) >= EXACT, inexact)):
        if strays.any():
            place = tuple(np.argwhere(strays)[0])
            raise CellError(int(place[0]), f"expected {datatype}, got {array[place]}{advice}")
    return array.astype(np.int64)


def parsed(cells: list, datatype: str) -> np.ndarray:
    """Cells of any type as an array of numbers."""
    types = set(map(type, cells))
    if types <= {int, float, bool} or types <= {list} or types <= {np.ndarray}:
        try:
            array = array_of(cells)
            if array.dtype.kind in "biuf":
                return array
            cells = array.tolist()
        except (ValueError, OverflowError):
            raise CellError(
                odd_row(cells), "its list and others differ in length; --batch-size 1 sends each by itself"
            ) from None
    return array_of([number(cell, row, datatype) for row, cell in enumerate(cells)])


def odd_row(cells: list) -> int:
    """The first whose list is not like that of the row before, or is ragged itself."""
    before = None
    for row, cell in enumerate(cells):
        try:
            shape = np.shape(cell)
        except ValueError:
            return row
        if before not in (None, shape):
            return row
        before = shape
    return 0


def array_of(cells: list) -> np.ndarray:
    """As np.array has it, but for integers on both sides of 2**63, which it makes floats."""
    array = np.array(cells)
    if array.dtype.kind == "f" and array.size and array.min() >= 0 and array.max() >= 2**63:
        exact = np.array(cells, object)
        if set(map(type, exact.ravel().tolist())) == {int}:
            return exact.astype(np.uint64)
    return array


def number(cell: Any, row: int, datatype: str) -> Any:
    if isinstance(cell, list):
        return [number(each, row, datatype) for each in cell]
    if cell is None or (isinstance(cell, str) and cell in GAPS):
        return math.nan
    if datatype == "BOOL" and str(cell).lower() in TRUTHS:
        return TRUTHS[str(cell).lower()]
    is_float = datatype.startswith("FP")
    if isinstance(cell, float | np.number) or (isinstance(cell, int) and not is_float):
        return cell
    is_whole = isinstance(cell, str) and cell.strip().lstrip("+-").isdigit() and not is_float
    with suppress(TypeError, ValueError, OverflowError):
        value = int(cell) if is_whole else float(cell)
        # Python reads 1_000, and makes an infinity of what is beyond a float
        if "_" not in str(cell) and (is_whole or math.isfinite(value) or not re.search(r"\d", str(cell))):
            return value
    raise CellError(row, f"expected {datatype}, got {shorten(repr(cell))}")


def is_moments(array: np.ndarray) -> bool:
    """Whether it holds dates or datetimes, with gaps or without."""
    types = set(map(type, array.ravel().tolist())) if array.dtype.kind == "O" else ()
    return array.dtype.kind == "M" or any(issubclass(each, date) for each in types)


def as_texts(array: np.ndarray, tensor: MetadataTensor, is_image: bool) -> np.ndarray:
    """The column as text or bytes, in the form that the input's content type has on the wire."""
    if is_image:
        encoded = Base64Codec.encode(array)[1] if tensor.content_type == Base64Codec.ContentType else array
        return encoded.reshape(-1)
    if is_moments(array):
        return encode_column(array.ravel())[1].reshape(array.shape)
    if array.dtype.kind in "US":
        array = array.astype(object)
    cells = array.tolist()
    types = set(map(type, cells))
    if types <= {list} or types <= {np.ndarray}:
        return bytes_array(np.array([list(each) for each in cells], object))
    for row, cell in enumerate(cells if types - {str, bytes, type(None)} else ()):
        if not isinstance(cell, str | bytes | type(None)):
            if isinstance(cell, float) and math.isnan(cell):
                cells[row] = None
            elif isinstance(cell, int | float) and not isinstance(cell, bool):
                cells[row] = str(cell)
            else:
                raise CellError(row, f"expected text, got {shorten(repr(cell))}")
    if tensor.content_type == DatetimeCodec.ContentType:
        cells = [each or "NaT" for each in cells]
    return object_array(cells)
