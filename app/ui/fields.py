"""Form fields: one per input that METADATA declares, with the example as the initial value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.protocol.datatypes import datatype_of, format_shape
from app.protocol.http_body import write_json
from app.protocol.metadata import MetadataTensor

IMAGE = re.compile(r"image|png|jpe?g|gif|webp|bmp", re.IGNORECASE)
COLUMN = ([-1], [-1, 1])
# Text that requires quotes in CSV.
QUOTED = re.compile(r'[",;\t\r\n]|^[\s[]|\s$|^$')
HINTS = {
    "grid": "Separate values by commas, spaces or tabs, as in a spreadsheet, or enter a JSON list.",
    "lines": "One text per line, or a JSON list for texts with several lines.",
    "file": "Sent as base64 text. Without a file, the example is sent.",
}


@dataclass
class Field:
    """Form field for one input. `kind` is number, switch, text, lines, grid or file. `value` is the initial text."""

    tensor: MetadataTensor
    kind: str
    value: str

    @property
    def hint(self) -> str:
        if self.tensor.content_type == "datetime":
            return "ISO 8601, for example 2024-01-31T12:00:00."
        return HINTS.get(self.kind, "")

    @property
    def summary(self) -> str:
        words = [
            self.tensor.datatype,
            format_shape(self.tensor.shape),
            self.tensor.content_type or "",
        ]
        return " ".join(filter(None, [*words, "optional" * self.tensor.optional]))

    @property
    def height(self) -> int:
        """Return the number of lines of the text area."""
        return min(max(self.value.count("\n") + 1, 2 if self.kind == "text" else 3), 12)


def is_table(tensors: list[MetadataTensor]) -> bool:
    """Return True if the inputs are the columns of a table."""
    return len(tensors) > 1 and all(
        tensor.shape in COLUMN and not is_file(tensor) for tensor in tensors
    )


def create_fields(tensors: list[MetadataTensor], example: Mapping[str, Any]) -> list[Field]:
    """Return one field per input, with its value in `example`."""
    is_cell = is_table(tensors)
    kinds = [kind_of(tensor, is_cell) for tensor in tensors]
    return [
        Field(tensor, kind, initial_text(kind, tensor, example.get(tensor.name)))
        for tensor, kind in zip(tensors, kinds, strict=True)
    ]


def is_file(tensor: MetadataTensor) -> bool:
    """Return True if users upload the input as files, for example images."""
    content_type = tensor.content_type or ""
    return tensor.datatype == "BYTES" and (
        content_type in ("base64", "bytes") or bool(IMAGE.search(content_type))
    )


def kind_of(tensor: MetadataTensor, is_cell: bool) -> str:
    datatype = datatype_of(tensor.datatype)
    if is_file(tensor):
        return "file"
    if is_cell or set(tensor.shape) <= {1}:
        if datatype.is_boolean:
            return "switch"
        return "text" if datatype.is_text else "number"
    return "lines" if datatype.is_text and len(tensor.shape) == 1 else "grid"


def initial_text(kind: str, tensor: MetadataTensor, example: dict[str, Any] | None) -> str:
    """Return the initial text of a field: the example as plain text, or as a JSON list if that is ambiguous."""
    values, shape = (example["data"], example["shape"]) if example else ([], [])
    if kind not in ("grid", "lines"):
        value = values[0] if values else None
        return value if isinstance(value, str) else to_cell(value)
    if kind == "lines":
        rows = ["" if value is None else value for value in values]
        is_plain = all(row and "\n" not in row for row in rows)
    else:
        size = shape[-1] if len(shape) > 1 else len(values)
        starts = range(0, len(values), size) if size else []
        rows = [", ".join(map(to_cell, values[start : start + size])) for start in starts]
        is_plain = "" not in rows and (len(shape) <= 2 or tensor.shape.count(-1) <= 1)
    is_like_json = kind == "lines" and "".join(rows[:1]).lstrip().startswith("[")
    if is_plain and not is_like_json:
        return "\n".join(rows)
    return write_json(np.array(values, object).reshape(shape).tolist()).decode()


def to_cell(value: Any) -> str:
    """Return a CSV cell: empty for a missing value, in quotes if necessary."""
    if isinstance(value, str):
        return '"{}"'.format(value.replace('"', '""')) if QUOTED.search(value) else value
    return "" if value is None else write_json(value).decode()


def to_csv(tensors: list[MetadataTensor], values: Mapping[str, list[Any]]) -> str:
    """Return the values as CSV with a header line and one column per input."""
    names = [tensor.name for tensor in tensors if tensor.name in values]
    rows = zip(*(values[name] for name in names), strict=False)
    return "\n".join(",".join(map(to_cell, row)) for row in [names, *rows])
