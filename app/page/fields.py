"""What a form asks for each input, as METADATA declares it, filled with an example."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.datatypes import datatype_of, shape_text
from app.envelope import write_json
from app.types import MetadataTensor

IMAGE = re.compile(r"image|png|jpe?g|gif|webp|bmp", re.IGNORECASE)
COLUMN = ([-1], [-1, 1])
# What has to be in quotes for a cell of CSV to be read as it is.
QUOTED = re.compile(r'[",;\t\r\n]|^[\s[]|\s$|^$')
HINTS = {
    "grid": "Separated by commas, blanks or tabs, as a spreadsheet copies them; or a JSON list.",
    "lines": "One text a line, an empty line between others, too; or a JSON list, for texts of several lines.",
    "file": "Sent as base64 text.",
    "example": "Sent as base64 text; without a choice the example is.",
    "datetime": "As in 2024-01-31T12:00:00, one a line where there are more.",
}


@dataclass
class Field:
    """An input in a form; `kind` is a choice of the page's, and `value` the text that it starts with."""

    tensor: MetadataTensor
    kind: str
    value: str
    optional: bool
    hint: str

    @property
    def summary(self) -> str:
        content_type = self.tensor.content_type
        words = [self.tensor.datatype, shape_text(self.tensor.shape), *([content_type] if content_type else [])]
        return " ".join([*words, *(["optional"] if self.optional else [])])

    @property
    def lines(self) -> int:
        """How high a box for the value is."""
        return min(max(self.value.count("\n") + 1, 2 if self.kind == "text" else 3), 12)


def is_table(tensors: list[MetadataTensor]) -> bool:
    """Whether the inputs are the columns of a table."""
    return len(tensors) > 1 and all(tensor.shape in COLUMN and not is_file(tensor) for tensor in tensors)


def fields(tensors: list[MetadataTensor], optional: Container[str], example: Mapping[str, Any]) -> list[Field]:
    """A field for each input, filled with what `example` has for it; one for a cell where there is a table."""
    table = is_table(tensors)
    return [field_of(tensor, table, tensor.name in optional, example.get(tensor.name)) for tensor in tensors]


def field_of(tensor: MetadataTensor, is_cell: bool, optional: bool, example: dict[str, Any] | None) -> Field:
    kind = kind_of(tensor, is_cell)
    values, shape = (example["data"], example["shape"]) if example else ([], [])
    hint = "datetime" if tensor.content_type == "datetime" else "example" if kind == "file" and values else kind
    return Field(tensor, kind, written(kind, values, shape, tensor.shape), optional, HINTS.get(hint, ""))


def is_file(tensor: MetadataTensor) -> bool:
    """Whether people have the input as files, images most likely."""
    return tensor.datatype == "BYTES" and (tensor.content_type == "base64" or is_image(tensor))


def is_image(tensor: MetadataTensor) -> bool:
    return bool(IMAGE.search(tensor.content_type or ""))


def kind_of(tensor: MetadataTensor, is_cell: bool) -> str:
    letter = datatype_of(tensor.datatype).kind
    if is_file(tensor):
        return "file"
    if is_cell or set(tensor.shape) <= {1}:
        return {"b": "switch", "O": "text"}.get(letter, "number")
    return "lines" if letter == "O" and len(tensor.shape) == 1 else "grid"


def token(value: Any) -> str:
    """A number as JSON has it, and nothing for a missing one."""
    return "" if value is None else write_json(value).decode()


def cell(value: Any) -> str:
    """A cell of CSV: nothing where the value is missing, and quotes where they are needed."""
    if not isinstance(value, str):
        return token(value)
    doubled = value.replace('"', '""')
    return f'"{doubled}"' if QUOTED.search(value) else value


def written(kind: str, values: list[Any], shape: list[int], declared: list[int]) -> str:
    """What a field of `kind` holds at first."""
    if kind == "grid":
        return grid(values, shape, declared)
    return lines(values) if kind == "lines" else one(values)


def one(values: list[Any]) -> str:
    value = values[0] if values else None
    return value if isinstance(value, str) else token(value)


def lines(values: list[Any]) -> str:
    plain = all(isinstance(value, str) and value and "\n" not in value for value in values)
    text = "\n".join(values) if plain else ""
    return text if plain and not text.lstrip().startswith("[") else write_json(values).decode()


def grid(values: list[Any], shape: list[int], declared: list[int]) -> str:
    """A row a line; a list of JSON where lines leave the shape open, or one would be blank."""
    size = shape[-1] if len(shape) > 1 else len(values)
    starts = range(0, len(values), size) if size else []
    rows = [", ".join(map(cell, values[start : start + size])) for start in starts]
    if "" in rows or (len(shape) > 2 and declared.count(-1) > 1):
        return write_json(np.array(values, object).reshape(shape).tolist()).decode()
    return "\n".join(rows)


def csv(tensors: list[MetadataTensor], values: Mapping[str, list[Any]]) -> str:
    """The values as CSV, a column an input, named in the first line."""
    named = [tensor.name for tensor in tensors if tensor.name in values]
    rows = zip(*(values[name] for name in named), strict=False)
    return "\n".join(",".join(map(cell, row)) for row in [named, *rows])
