"""Select the columns of each input of the model, and make requests from rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from app.cli.batch import arrays
from app.cli.batch.reading import CONTENTS
from app.cli.common import Failure
from app.errors import InferenceError, InvalidInput, shorten
from app.types import InferenceRequest, MetadataTensor, RequestInput

FEW_ROWS = 100  # that show whether a column of text has numbers


@dataclass
class ColumnMapping:
    """The columns of each input, and the columns that no input takes."""

    inputs: dict[str, MetadataTensor]
    columns: dict[str, list[str]]
    unused: list[str]

    def request(self, table: pa.Table) -> InferenceRequest:
        """Return the request of these rows. Raise InvalidInput if a value does not fit the input."""
        inputs = []
        for name, columns in self.columns.items():
            tensor = self.inputs[name]
            try:
                made = [arrays.to_input(table[column].combine_chunks(), tensor) for column in columns]
                array = made[0] if len(made) == 1 else np.stack(made, axis=1)
                shape = (len(table), *tensor.shape[1:])
                if -1 not in tensor.shape[1:] and array.size == math.prod(shape):
                    array = array.reshape(shape)
                inputs.append(RequestInput(name, tensor.datatype, data=array))
            except InferenceError as error:
                raise error.about("input", name) from None
        return InferenceRequest(inputs)


def map_columns(
    head: pa.Table, inputs: Sequence[MetadataTensor], optional: frozenset[str], chosen: Sequence[str]
) -> ColumnMapping:
    """Select the columns of each input.

    An input takes the column with its name, or NAME_0, NAME_1 and so on. If no column has the name of an input, the
    `chosen` columns go to the inputs in order. The only input of a model takes as many columns as a row of it has
    values: all of them, or those with numbers. Raise Failure if a column is missing.
    """
    if not head.column_names:  # JSON Lines without rows
        return ColumnMapping({}, {}, [])
    candidates = list(chosen) or ([CONTENTS] if CONTENTS in head.column_names else head.column_names)
    if unknown := [name for name in candidates if name not in head.column_names]:
        raise Failure(f'--columns: no column "{unknown[0]}". The file has {_join(head.column_names)}.')
    tensors = {each.name: each for each in inputs}
    columns = {name: _columns_by_name(tensor, candidates) for name, tensor in tensors.items()}
    if not any(columns.values()):
        if len(inputs) == 1:
            columns = {inputs[0].name: _columns_of_only_input(head, inputs[0], candidates)}
        elif chosen and len(chosen) == len(inputs):
            columns = {name: [column] for name, column in zip(tensors, chosen, strict=True)}
    used = {column for found in columns.values() for column in found}
    if missing := [name for name, found in columns.items() if not found and name not in optional]:
        raise Failure(f'Input "{missing[0]}": no column. The file has {_join(candidates)}. Select with --columns.')
    if strange := [name for name in chosen if name not in used]:
        raise Failure(f'--columns: "{strange[0]}" belongs to no input')
    columns = {name: found for name, found in columns.items() if found}
    return ColumnMapping(tensors, columns, [name for name in head.column_names if name not in used])


def _columns_by_name(tensor: MetadataTensor, candidates: Sequence[str]) -> list[str]:
    """Return the column with the input's name, or NAME_0, NAME_1 and so on if all of them are there."""
    if tensor.name in candidates:
        return [tensor.name]
    numbered = re.compile(re.escape(tensor.name) + r"_\d+")
    found = [name for name in candidates if numbered.fullmatch(name)]
    expected = [f"{tensor.name}_{index}" for index in range(_width(tensor) or len(found))]
    return expected if sorted(expected) == sorted(found) else []


def _columns_of_only_input(head: pa.Table, tensor: MetadataTensor, candidates: list[str]) -> list[str]:
    """Return all columns, or those with numbers, if they are as many as the input has values in a row."""
    width = _width(tensor)
    numeric = [name for name in candidates if tensor.datatype != "BYTES" and _has_numbers(head[name])]
    is_one_array = len(candidates) == 1 and arrays.is_list(head[candidates[0]].type)
    for found in (candidates, numeric):
        if found and (is_one_array or width in (None, len(found))):
            return found
    got = f"{len(numeric)} with numbers in {_join(candidates)}"
    raise Failure(f'Input "{tensor.name}": expected {width} columns, got {got}. Select with --columns.')


def _has_numbers(column: pa.ChunkedArray) -> bool:
    try:
        arrays.to_input(column.slice(0, FEW_ROWS).combine_chunks(), MetadataTensor("", "FP64", [-1]))
    except InvalidInput:
        return False
    return True


def _width(tensor: MetadataTensor) -> int | None:
    """Return the number of values in a row. None if it is variable."""
    return None if -1 in tensor.shape[1:] else math.prod(tensor.shape[1:])


def _join(names: Sequence[str]) -> str:
    return shorten(", ".join(names), 300)
