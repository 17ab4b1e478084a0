"""What the columns of a file are as inputs of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.cli.cells import CellError, as_numbers, as_texts
from app.cli.tables import ABSENT, Rows
from app.datatypes import Datatype, as_array, datatype_of
from app.errors import InferenceError, InvalidInput, shorten
from app.types import InferenceRequest, MetadataTensor, RequestInput


@dataclass
class Matching:
    """The columns of each input, in order, the columns that no input has, and what to tell of it before it is used."""

    inputs: dict[str, list[str]]
    tensors: dict[str, MetadataTensor]
    extra: list[str]
    is_image: bool = False
    notes: Sequence[str] = ()
    takes_gaps: bool = True  # of text
    blank: set[str] | None = None  # the inputs that were given empty text, where a file has no other form of a gap

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
        """The service's error, led by the row of several whose text it quotes, where it is about one of an input."""
        for each in request.inputs if len(request.inputs[0].data) > 1 else ():
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
                if self.blank is not None and "" in texts.ravel().tolist():
                    self.blank.add(tensor.name)
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
