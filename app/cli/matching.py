"""Which columns of a file make which inputs of a model, and what they are there."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.cli.cells import CellError, as_numbers, as_texts
from app.cli.common import Failure
from app.cli.tables import ABSENT, Rows, Table
from app.datatypes import Datatype, as_array, datatype_of
from app.errors import InferenceError, InvalidInput, shorten
from app.types import InferenceRequest, MetadataTensor, RequestInput


@dataclass
class Matching:
    """The columns of each input, in order, and the columns that no input has."""

    inputs: dict[str, list[str]]
    tensors: dict[str, MetadataTensor]
    extra: list[str]
    is_image: bool = False
    takes_gaps: bool = True  # of text

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

    def with_row(self, error: InferenceError, request: InferenceRequest, start: int) -> InferenceError:
        """The service's error, led by the row whose text it quotes, where it is about one of an input."""
        for each in request.inputs:
            if each.datatype == "BYTES" and f'input "{each.name}"' in (said := str(error)):
                for row, text in enumerate(each.data.tolist()):
                    if "got " + shorten(repr(text)) in said or f"data: {shorten(repr(text))} " in said:
                        return error.about(f"row {start + row + 1:,}")
        return error

    def column(self, rows: Rows, name: str, tensor: MetadataTensor, start: int) -> np.ndarray:
        try:
            array = rows[name]
            if array.dtype.kind == "O" and (gaps := [row for row, cell in enumerate(array.tolist()) if cell is ABSENT]):
                raise CellError(gaps[0], "missing")
            if tensor.datatype == "BYTES":
                texts = as_texts(array, tensor, self.is_image)
                if not self.takes_gaps and None in (flat := texts.ravel().tolist()):
                    row = flat.index(None) * len(texts) // len(flat)
                    raise CellError(row, "missing text, which gRPC has no form of; REST has: leave --grpc out")
                return texts
            return numbers(as_numbers(array, tensor.datatype), datatype_of(tensor.datatype))
        except CellError as error:
            # a batch of one row is called by that row's number already
            which = [f"row {start + error.row + 1:,}"] if len(array) > 1 else []
            where = ", ".join(which + ([f'column "{name}"'] if name else []))
            raise InvalidInput(f"{where}: {error.text}" if where else error.text) from None


def numbers(array: np.ndarray, datatype: Datatype) -> np.ndarray:
    """The array as one of the datatype; CellError for the first row that it cannot hold."""
    try:
        return as_array(array, datatype)
    except InvalidInput:
        for row in range(len(array)):
            try:
                as_array(array[row : row + 1], datatype)
            except InvalidInput as error:
                raise CellError(row, str(error).removeprefix("data: ")) from None
        raise


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

    `chosen` are the columns to look at: by their names, or in their order where none is an input's. Failure where an
    input has none.
    """
    tensors = {each.name: each for each in inputs}
    if any(not each.shape for each in inputs):
        raise Failure("an input of the model has no rows (its shape is []), which files are made of")
    columns = table.columns
    if not columns and not table.total:
        return Matching({}, tensors, [])
    if "" in columns:
        return match_array(table, tensors)
    if table.doubt and not chosen:
        raise Failure(table.doubt)
    if strangers := [each for each in chosen if each not in columns]:
        raise Failure(f'--columns: no "{strangers[0]}"; the file has {listed(columns)}')
    looked_at = list(chosen) or columns
    found = {each.name: own_columns(each, looked_at, is_chosen=bool(chosen)) for each in inputs}
    missing = [name for name, made in found.items() if not made]
    if by_name := bool(chosen) and any(found.values()):
        check_chosen(chosen, found)
    if missing and len(inputs) == 1:
        found = {missing[0]: all_columns(inputs[0], looked_at, table)}
    elif missing and not by_name and (chosen or not table.has_names) and len(looked_at) == len(inputs):
        found = {name: [column] for name, column in zip(tensors, looked_at, strict=True)}
    elif needed := [name for name in missing if name not in optional]:
        raise Failure(
            f'no column for the input "{needed[0]}"; the file has {listed(looked_at)}{likely(needed[0], looked_at)}'
            f"{table.hint}"
        )
    for name, made in found.items():
        if len(made) == 1 and made[0] in table.shapes:
            check_shape(tensors[name], table.shapes[made[0]])
    used = {column for made in found.values() for column in made}
    return Matching(
        {name: made for name, made in found.items() if made}, tensors, [each for each in columns if each not in used]
    )


def check_chosen(chosen: Sequence[str], found: dict[str, list[str]]) -> None:
    """Raises Failure where some of the chosen columns go by name, and some are no input's."""
    used = {column for made in found.values() for column in made}
    strangers, missing = [each for each in chosen if each not in used], [name for name in found if not found[name]]
    if strangers:
        rest = f"; without a column: {listed(missing)}" if missing else ""
        raise Failure(
            f"--columns: {listed(strangers)}: not the name of an input, as others are; give names alone, or none of them"
            f"{rest}{likely(strangers[0], missing)}"
        )


def likely(name: str, columns: Sequence[str]) -> str:
    """The column that is called so but for the case of its letters."""
    alike = [each for each in columns if each.casefold() == name.casefold()]
    return f'; "{alike[0]}" differs in case' if alike else ""


def check_shape(tensor: MetadataTensor, shape: Sequence[int]) -> None:
    """Raises Failure where rows of this shape are none of the input."""
    wanted, number = tensor.shape[1:], width(tensor)
    fits = math.prod(shape) == number
    if number is None:
        fits = len(shape) == len(wanted) and all(size in (-1, own) for size, own in zip(wanted, shape, strict=True))
    if not fits:
        raise Failure(f'input "{tensor.name}" has rows of shape {list(wanted)}; the array has rows of {list(shape)}')


def match_array(table: Table, tensors: dict[str, MetadataTensor]) -> Matching:
    """An array without a name, or images, are the only input."""
    is_image = "file" in table.columns
    (name, tensor), *others = tensors.items()
    if others:
        raise Failure(f"one array is one input, and the model takes {listed(tensors)}; NPZ holds several by name")
    if is_image and (tensor.datatype != "BYTES" or width(tensor) != 1):
        raise Failure(f'input "{name}" is {tensor.datatype} {tensor.shape}, and takes no image files; NPY has arrays')
    if not is_image:
        check_shape(tensor, table.shapes[""])
    return Matching({name: [""]}, tensors, ["file"] if is_image else [], is_image)


def own_columns(tensor: MetadataTensor, columns: Sequence[str], is_chosen: bool) -> list[str]:
    """The columns that are called as the input is; Failure where they are some of those that it needs."""
    if tensor.name in columns:
        return [tensor.name]
    number = width(tensor)
    if number is None:
        own = re.compile(re.escape(tensor.name) + r"_(\d+)")
        number = 1 + max((int(made[1]) for each in columns if (made := own.fullmatch(each))), default=-1)
    spread = [f"{tensor.name}_{index}" for index in range(min(number, 2**16))]
    missing = [each for each in spread if each not in set(columns)]
    if missing and len(missing) < len(spread) and not is_chosen:
        raise Failure(f"{missing[0]} is missing; the file has {listed(columns)}{likely(missing[0], columns)}")
    return [] if missing else spread


def all_columns(tensor: MetadataTensor, columns: Sequence[str], table: Table) -> list[str]:
    """The columns of an only input that goes by none of their names."""
    is_text = tensor.datatype == "BYTES"
    fitting = [each for each in columns if (each in table.numeric) != is_text]
    if tensor.shape[1:].count(-1) and len(tensor.shape) > 2:
        raise Failure(f'input "{tensor.name}" has shape {tensor.shape}: give NPY, or JSON lines with lists')
    wanted = width(tensor)
    for candidates in (list(columns), fitting):
        if candidates and wanted in (None, len(candidates)):
            return candidates
    kind = "" if is_text else " of numbers"
    raise Failure(
        f'input "{tensor.name}" takes {wanted} columns{kind}; the file has {len(fitting)}: {listed(columns)}; '
        f"--columns A,B,... chooses{table.hint}"
    )


def listed(names: Any) -> str:
    return shorten(", ".join(names) or "none", 300)
