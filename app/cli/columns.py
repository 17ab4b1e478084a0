"""The columns of the output: kept ones, and what the answers are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.cli.cells import is_moments
from app.cli.common import Failure
from app.cli.tables import ABSENT
from app.codecs.arrays import datatype_name
from app.codecs.base import decode_tensor
from app.codecs.frames import encode_column
from app.codecs.strings import text_list
from app.datatypes import bytes_array, datatype_of, object_array
from app.errors import InferenceError, InvalidInput
from app.types import InferenceResponse, MetadataTensor, ResponseOutput


class Column:
    """One column of the output: what a row has of a tensor that was an answer, or a kept column."""

    def __init__(self, name: str, array: np.ndarray, content_type: str | None = None):
        self.name, self.array, self.content_type = name, array, content_type

    def tensor(self) -> ResponseOutput:
        parameters = {"content_type": self.content_type} if self.content_type else {}
        return ResponseOutput.of(self.name, datatype_name(self.array.dtype), self.array, parameters)

    def values(self) -> np.ndarray:
        """The array, of pd_json what its texts say; InvalidInput where they are no JSON."""
        if self.content_type != "pd_json":
            return self.array
        from app.codecs.frames import PandasJsonCodec

        return object_array(decode_tensor(self.tensor(), PandasJsonCodec)).reshape(self.array.shape)

    def texts(self, values: list[Any]) -> list[Any]:
        """Bytes among `values` as text; InvalidInput where they are none."""
        try:
            return text_list(values)
        except InvalidInput as error:
            advice = 'content_type="base64" in METADATA makes text of bytes'
            raise InvalidInput(f'column "{self.name}": {error}; {advice}') from None


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


def check_kept(kept: Sequence[str], outputs: Sequence[str]) -> None:
    """Raises Failure where a kept column is named as one of the outputs."""
    for name in kept:
        if name in outputs:
            raise Failure(
                f'--keep: "{name}" is an output of the model too; rename the column in the file, or leave --keep out'
            )


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


def kept_column(name: str, array: np.ndarray) -> Column:
    """A column of the input as one of the output; InvalidInput for cells that the wire has no form of."""
    if array.dtype.kind in "biuf":
        return Column(name, array)
    if is_moments(array):
        _, encoded, content_type = encode_column(array.ravel())
        return Column(name, encoded.reshape(array.shape), content_type)
    cells = [None if cell is ABSENT else cell for cell in array.tolist()]
    if set(map(type, cells)) <= {str, bytes, type(None)}:
        return Column(name, object_array(cells), "str" if bytes not in set(map(type, cells)) else None)
    try:
        _, encoded, content_type = encode_column(object_array(cells))
    except InferenceError as error:
        raise error.about(f'column "{name}"') from None
    return Column(name, bytes_array(encoded) if encoded.dtype.kind == "O" else encoded, content_type)
