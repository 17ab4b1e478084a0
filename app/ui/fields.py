"""Form fields: one per input that METADATA declares, with the example as the initial value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from app.protocol.datatypes import datatype_of, format_shape
from app.protocol.envelope import JsonObject
from app.protocol.http_body import write_json
from app.protocol.metadata import MetadataTensor

# Content types of files that the page shows as pictures.
IMAGE = re.compile(r"image|png|jpe?g|gif|webp|bmp", re.IGNORECASE)
# Shapes of inputs with one value per row.
COLUMN_SHAPES = ([-1], [-1, 1])
# Text that requires quotes in CSV.
QUOTED = re.compile(r'[",;\t\r\n]|^[\s[]|\s$|^$')
# Limits of the lines in a text area.
MIN_TEXT_HEIGHT = 2
MIN_LIST_HEIGHT = 3
MAX_HEIGHT = 12


class FieldKind(StrEnum):
    """The kind of a form field. The template and the scripts of the page use the values."""

    NUMBER = "number"
    SWITCH = "switch"
    TEXT = "text"
    LINES = "lines"
    GRID = "grid"
    FILE = "file"


HINTS = {
    FieldKind.GRID: "Separate values by commas, spaces or tabs, as in a spreadsheet, or enter a"
    " JSON list.",
    FieldKind.LINES: "One text per line, or a JSON list for texts with several lines.",
    FieldKind.FILE: "Sent as base64 text. Without a file, the example is sent.",
}


@dataclass
class Field:
    """Form field for one input. `value` is the initial text."""

    tensor: MetadataTensor
    kind: FieldKind
    value: str

    @property
    def hint(self) -> str:
        if self.tensor.content_type == "datetime":
            return "ISO 8601, for example 2024-01-31T12:00:00."
        return HINTS.get(self.kind, "")

    @property
    def summary(self) -> str:
        """Return datatype, shape and content type, such as `BYTES [-1] datetime optional`."""
        words = [self.tensor.datatype, format_shape(self.tensor.shape)]
        if self.tensor.content_type:
            words.append(self.tensor.content_type)
        if self.tensor.optional:
            words.append("optional")
        return " ".join(words)

    @property
    def height(self) -> int:
        """Return the number of lines of the text area."""
        line_count = self.value.count("\n") + 1
        minimum = MIN_TEXT_HEIGHT if self.kind is FieldKind.TEXT else MIN_LIST_HEIGHT
        return min(max(line_count, minimum), MAX_HEIGHT)


def create_fields(tensors: list[MetadataTensor], example: Mapping[str, JsonObject]) -> list[Field]:
    """Return one field per input. `example` has inputs of a request in JSON form, by name."""
    is_cell = is_table(tensors)
    fields = []
    for tensor in tensors:
        kind = _kind_of(tensor, is_cell)
        value = _initial_text(kind, tensor, example.get(tensor.name))
        fields.append(Field(tensor, kind, value))
    return fields


def is_table(tensors: list[MetadataTensor]) -> bool:
    """Return True if the inputs are the columns of a table."""
    return len(tensors) > 1 and all(map(_is_column, tensors))


def _is_column(tensor: MetadataTensor) -> bool:
    return tensor.shape in COLUMN_SHAPES and not _is_file(tensor)


def _is_file(tensor: MetadataTensor) -> bool:
    """Return True if users upload the input as files, for example images."""
    if tensor.datatype != "BYTES":
        return False
    content_type = tensor.content_type or ""
    return content_type in ("base64", "bytes") or IMAGE.search(content_type) is not None


def _kind_of(tensor: MetadataTensor, is_cell: bool) -> FieldKind:
    """Return the kind of field for an input. A cell of a table has one value."""
    if _is_file(tensor):
        return FieldKind.FILE

    datatype = datatype_of(tensor.datatype)
    has_one_value = is_cell or set(tensor.shape) <= {1}
    if has_one_value:
        if datatype.is_boolean:
            return FieldKind.SWITCH
        if datatype.is_text:
            return FieldKind.TEXT
        return FieldKind.NUMBER
    if datatype.is_text and len(tensor.shape) == 1:
        return FieldKind.LINES
    return FieldKind.GRID


def _initial_text(kind: FieldKind, tensor: MetadataTensor, example: JsonObject | None) -> str:
    """Return the initial text of a field: the example as plain text, or as a JSON list if the page
    would read plain text differently.
    """
    if not example:
        return ""
    values = example["data"]
    shape = example["shape"]
    if kind is FieldKind.LINES:
        text = _to_lines(values)
    elif kind is FieldKind.GRID:
        text = _to_grid(values, shape, tensor)
    else:
        text = _to_one_value(values)
    if text is not None:
        return text
    nested = np.array(values, object).reshape(shape).tolist()
    return write_json(nested).decode()


def _to_one_value(values: list[Any]) -> str:
    """Return the first value. Text has no quotes, because the field contains only this value."""
    if not values:
        return ""
    value = values[0]
    if isinstance(value, str):
        return value
    return to_cell(value)


def _to_lines(texts: list[str | None]) -> str | None:
    """Return one text per line, or None if a text does not fit on a line.

    An empty line is not a text, and "[" at the beginning starts a JSON list.
    """
    if not texts:
        return ""
    lines = []
    for text in texts:
        if not text or "\n" in text:
            return None
        lines.append(text)
    value = "\n".join(lines)
    if value.lstrip().startswith("["):
        return None
    return value


def _to_grid(values: list[Any], shape: list[int], tensor: MetadataTensor) -> str | None:
    """Return one row per line, or None if the page could not find the shape from the lines.

    That is the case for empty lines, and for several variable dimensions.
    """
    if len(shape) > 2 and tensor.shape.count(-1) > 1:
        return None
    width = shape[-1] if len(shape) > 1 else len(values)
    if width == 0:
        return ""
    lines = []
    for start in range(0, len(values), width):
        row = values[start : start + width]
        line = ", ".join(map(to_cell, row))
        if not line:
            return None
        lines.append(line)
    return "\n".join(lines)


def to_cell(value: Any) -> str:
    """Return a CSV cell: empty for a missing value, in quotes if necessary."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return write_json(value).decode()
    if not QUOTED.search(value):
        return value
    escaped = value.replace('"', '""')
    return f'"{escaped}"'


def to_csv(tensors: list[MetadataTensor], values: Mapping[str, list[Any]]) -> str:
    """Return the values as CSV with a header line and one column per input."""
    names = [tensor.name for tensor in tensors if tensor.name in values]
    columns = [values[name] for name in names]
    lines = []
    for row in [names, *zip(*columns, strict=False)]:
        lines.append(",".join(map(to_cell, row)))
    return "\n".join(lines)
