"""Which columns of a file make which inputs of a model, and what they are there."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.cli.common import Failure
from app.cli.tables import ABSENT, GAPS, Rows, Table
from app.codecs import Base64Codec, DatetimeCodec
from app.datatypes import as_array, bytes_array, datatype_of, object_array
from app.errors import InferenceError, InvalidInput, shorten
from app.types import InferenceRequest, MetadataTensor, RequestInput

TRUTHS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


@dataclass
class Matching:
    """The columns of each input, in order, and the columns that no input has."""

    inputs: dict[str, list[str]]
    tensors: dict[str, MetadataTensor]
    extra: list[str]
    is_image: bool = False

    @property
    def kinds(self) -> dict[str, str]:
        """What each column is wanted for, as Table.read has it; where two inputs take one, text can still be both."""
        kinds: dict[str, str] = {}
        for name, columns in self.inputs.items():
            kind = datatype_of(self.tensors[name].datatype).kind
            for column in columns:
                kinds[column] = "O" if "O" in (kind, kinds.get(column)) else "f" if kind == "f" else "i"
        return kinds

    def request(self, rows: Rows, start: int = 0) -> InferenceRequest:
        """The request of these rows, the first of which has the number `start`, from 0.

        Raises InvalidInput where a cell is not what the input takes.
        """
        inputs = []
        for name, columns in self.inputs.items():
            tensor = self.tensors[name]
            try:
                arrays = [self.column(rows, each, tensor, start) for each in columns]
                array = arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
                inputs.append(RequestInput(name, tensor.datatype, data=shaped(array, tensor)))
            except InferenceError as error:
                raise error.about(f'input "{name}"') from None
        return InferenceRequest(inputs)

    def column(self, rows: Rows, name: str, tensor: MetadataTensor, start: int) -> np.ndarray:
        try:
            array = rows[name]
            if array.dtype.kind == "O" and ABSENT in (cells := array.tolist()):
                raise CellError(cells.index(ABSENT), "missing")
            if tensor.datatype == "BYTES":
                return as_texts(array, tensor, self.is_image)
            return as_array(as_numbers(array, tensor.datatype), datatype_of(tensor.datatype))
        except CellError as error:
            where = f', column "{name}"' if name else ""
            raise InvalidInput(f"row {start + error.row + 1:,}{where}: {error.text}") from None


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
        elif (array % 1 == 0).all() and (np.abs(array) <= 2**53).all():
            array = array.astype(np.int64)
    if datatype == "BOOL" and array.dtype.kind in "iu" and array.size:
        strays = (array != 0) & (array != 1)
        if not strays.any():
            return array.astype(bool)
    return array.astype(np.float32) if is_float and array.dtype.kind == "b" else array


def parsed(cells: list, datatype: str) -> np.ndarray:
    """Cells of any type as an array of numbers."""
    types = set(map(type, cells))
    if types <= {int, float, bool} or types <= {list} or types <= {np.ndarray}:
        try:
            array = np.array(cells)
            if array.dtype.kind in "biuf":
                return array
            cells = array.tolist()
        except (ValueError, OverflowError):
            raise CellError(
                0, "the lists of these rows differ in length; --batch-size 1 sends each by itself"
            ) from None
    return np.array([number(cell, row, datatype) for row, cell in enumerate(cells)])


def number(cell: Any, row: int, datatype: str) -> Any:
    if isinstance(cell, list):
        return [number(each, row, datatype) for each in cell]
    if cell is None or (isinstance(cell, str) and cell in GAPS):
        return math.nan
    if datatype == "BOOL" and str(cell).lower() in TRUTHS:
        return TRUTHS[str(cell).lower()]
    if isinstance(cell, int | float | np.number):
        return cell
    try:
        return int(cell) if isinstance(cell, str) and cell.strip().lstrip("+-").isdigit() else float(cell)
    except (TypeError, ValueError):
        raise CellError(row, f"expected {datatype}, got {shorten(repr(cell))}") from None


def as_texts(array: np.ndarray, tensor: MetadataTensor, is_image: bool) -> np.ndarray:
    """The column as text or bytes, in the form that the input's content type has on the wire."""
    if is_image:
        encoded = Base64Codec.encode(array)[1] if tensor.content_type == Base64Codec.ContentType else array
        return encoded.reshape(-1)
    if array.dtype.kind == "M":
        return DatetimeCodec.encode(array)[1].reshape(array.shape)
    if array.dtype.kind in "US":
        array = array.astype(object)
    cells = array.tolist() if array.dtype.kind == "O" else [str(each) for each in array.tolist()]
    types = set(map(type, cells))
    if types <= {list} or types <= {np.ndarray}:
        return bytes_array(np.array([list(each) for each in cells], object))
    for row, cell in enumerate(cells if types - {str, bytes, type(None)} else ()):
        if not isinstance(cell, str | bytes | type(None)):
            if isinstance(cell, float) and math.isnan(cell):
                cells[row] = None
            elif isinstance(cell, int | float):
                cells[row] = str(cell)
            else:
                raise CellError(row, f"expected text, got {shorten(repr(cell))}")
    if tensor.content_type == DatetimeCodec.ContentType:
        cells = [each or "NaT" for each in cells]
    return object_array(cells)


def shaped(array: np.ndarray, tensor: MetadataTensor) -> np.ndarray:
    """The rows in the shape that the input declares for each, where they are as many values."""
    if -1 in tensor.shape[1:] or array.ndim == 0 or not len(array):
        return array
    if array.size != len(array) * width(tensor):  # type: ignore[operator]
        return array
    return array.reshape(len(array), *tensor.shape[1:])


def width(tensor: MetadataTensor) -> int | None:
    """How many values a row of it has; None where any number will do."""
    return None if -1 in tensor.shape[1:] else math.prod(tensor.shape[1:])


def match(
    table: Table, inputs: Sequence[MetadataTensor], optional: Container[str] = (), chosen: Sequence[str] = ()
) -> Matching:
    """The columns for each input: those of its name, name_0 and on, or for an only input as many as it takes.

    `chosen` are the columns to look at, in their order. Failure where an input has none.
    """
    tensors = {each.name: each for each in inputs}
    if any(not each.shape for each in inputs):
        raise Failure("an input of the model has no rows (its shape is []), which files are made of")
    columns = table.columns
    if not columns and not table.total:
        return Matching({}, tensors, [])
    if "" in columns:
        return match_array(columns, tensors)
    if strangers := [each for each in chosen if each not in columns]:
        raise Failure(f'--columns: no "{strangers[0]}"; the file has {listed(columns)}')
    looked_at = list(chosen) or columns
    found = {each.name: own_columns(each, looked_at) for each in inputs}
    missing = [name for name, made in found.items() if not made]
    if missing and len(inputs) == 1:
        found = {missing[0]: all_columns(inputs[0], looked_at, table.numeric)}
    elif missing and not (table.has_names and not chosen) and len(looked_at) == len(inputs):
        found = {name: [column] for name, column in zip(tensors, looked_at, strict=True)}
    elif needed := [name for name in missing if name not in optional]:
        raise Failure(f'no column for the input "{needed[0]}"; the file has {listed(looked_at)}')
    used = {column for made in found.values() for column in made}
    return Matching(
        {name: made for name, made in found.items() if made}, tensors, [each for each in columns if each not in used]
    )


def match_array(columns: Sequence[str], tensors: dict[str, MetadataTensor]) -> Matching:
    """An array without a name, or images, are the only input."""
    is_image = "file" in columns
    (name, tensor), *others = tensors.items()
    if others:
        raise Failure(f"one array is one input, and the model takes {listed(tensors)}; NPZ holds several by name")
    if is_image and (tensor.datatype != "BYTES" or width(tensor) != 1):
        raise Failure(f'input "{name}" is {tensor.datatype} {tensor.shape}, and takes no image files; NPY has arrays')
    return Matching({name: [""]}, tensors, ["file"] if is_image else [], is_image)


def own_columns(tensor: MetadataTensor, columns: Sequence[str]) -> list[str]:
    if tensor.name in columns:
        return [tensor.name]
    spread = [f"{tensor.name}_{index}" for index in range(width(tensor) or 0)]
    return spread if set(spread) <= set(columns) else []


def all_columns(tensor: MetadataTensor, columns: Sequence[str], numeric: Sequence[str]) -> list[str]:
    """The columns of an only input that goes by none of their names."""
    is_text = tensor.datatype == "BYTES"
    fitting = [each for each in columns if (each in numeric) != is_text]
    if tensor.shape[1:].count(-1) and len(tensor.shape) > 2:
        raise Failure(f'input "{tensor.name}" has shape {tensor.shape}: give NPY, or JSON lines with lists')
    wanted = width(tensor)
    for candidates in (list(columns), fitting):
        if candidates and wanted in (None, len(candidates)):
            return candidates
    kind = "" if is_text else " of numbers"
    raise Failure(
        f'input "{tensor.name}" takes {wanted} columns{kind}; the file has {len(fitting)}: {listed(columns)}; '
        "--columns A,B,... chooses"
    )


def listed(names: Any) -> str:
    return shorten(", ".join(names) or "none", 300)
