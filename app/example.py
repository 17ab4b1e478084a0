"""A request that fits the model's metadata, to show and to try."""

from __future__ import annotations

import math
import shlex
from collections.abc import Container
from typing import Any
from urllib.parse import quote

from app.envelope import write_json
from app.types import MetadataTensor, ModelMetadata

# By content type, and by datatype where that says nothing.
EXAMPLES: dict[str | None, Any] = {
    "datetime": "2024-01-31T12:00:00",
    "base64": "dGV4dA==",
    "pd_json": '"text"',
    "BOOL": True,
    "BYTES": "text",
}


def example(metadata: ModelMetadata, optional: Container[str] = ()) -> dict[str, Any]:
    """An inference request as JSON has it, -1 read as 1: every input but the optional, or the first where all are."""
    required = [tensor for tensor in metadata.inputs if tensor.name not in optional]
    return {"inputs": [example_input(tensor) for tensor in required or metadata.inputs[:1]]}


def example_input(tensor: MetadataTensor) -> dict[str, Any]:
    shape = [1 if dimension == -1 else dimension for dimension in tensor.shape]
    value = EXAMPLES.get(tensor.content_type, EXAMPLES.get(tensor.datatype, 1))
    return {"name": tensor.name, "shape": shape, "datatype": tensor.datatype, "data": [value] * math.prod(shape)}


def curl(metadata: ModelMetadata, url: str, optional: Container[str] = (), options: str = "") -> str:
    """The command that sends the example to the service at `url`; `options` end with a blank, unless empty."""
    body = write_json(example(metadata, optional)).decode()
    return f"curl {options}{shlex.quote(f'{url}/v2/models/{quote(metadata.name)}/infer')} -d {shlex.quote(body)}"
