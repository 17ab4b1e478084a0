"""A request that fits the model's metadata, to show and to try."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from app.datatypes import datatype_of
from app.envelope import write_json
from app.errors import InvalidInput
from app.jsontensor import to_json
from app.types import MetadataTensor, ModelMetadata, RequestInput

# By content type, and by datatype where that says nothing.
EXAMPLES: dict[str | None, Any] = {
    "datetime": "2024-01-31T12:00:00",
    "base64": "dGV4dA==",
    "pd_json": '"text"',
    "BOOL": True,
    "BYTES": "text",
}

# A longer body is no line to read, and from 128 KiB on no argument that a command may have.
LONGEST_BODY = 2**11


def example(
    metadata: ModelMetadata, optional: Container[str] = (), given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """An inference request as JSON has it: the values `given` by input, or ones that are made up.

    Those are for every input but the optional, or the first where all are, -1 read as 1.
    """
    if given is not None:
        return {"inputs": [shown(tensor, given[tensor.name]) for tensor in metadata.inputs if tensor.name in given]}
    required = [tensor for tensor in metadata.inputs if tensor.name not in optional]
    return {"inputs": [example_input(tensor) for tensor in required or metadata.inputs[:1]]}


def example_input(tensor: MetadataTensor) -> dict[str, Any]:
    shape = [1 if dimension == -1 else dimension for dimension in tensor.shape]
    value = EXAMPLES.get(tensor.content_type, EXAMPLES.get(tensor.datatype, 1))
    return {"name": tensor.name, "shape": shape, "datatype": tensor.datatype, "data": [value] * math.prod(shape)}


def filled(tensor: MetadataTensor, values: Any) -> RequestInput:
    """The user's values as an input; None among floats is NaN, as null is in JSON."""
    try:
        if datatype_of(tensor.datatype).kind == "f":
            with suppress(TypeError, ValueError):
                array = np.asarray(values)
                values = array.astype(np.float64) if array.dtype.kind == "O" else values
        return RequestInput(tensor.name, tensor.datatype, data=values)
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None


def shown(tensor: MetadataTensor, values: Any) -> dict[str, Any]:
    made = filled(tensor, values)
    try:
        data = json.loads(write_json(to_json(made.data, datatype_of(tensor.datatype))))  # FP32's 5.1 is no 5.0999999
    except InvalidInput:  # bytes that are no text, which JSON cannot carry
        return example_input(tensor)
    return {"name": tensor.name, "shape": made.shape, "datatype": tensor.datatype, "data": data}


def curl_options(certificates: bool, keys: bool) -> str:
    """What curl shows a service that asks for clients' certificates, or for API keys; each option ends with a blank."""
    options = "--cert CLIENT.crt --key CLIENT.key " if certificates else ""
    return options + ('-H "Authorization: Bearer $API_KEY" ' if keys else "")


def curl(request: dict[str, Any], url: str, options: str) -> str:
    """The command that sends the request to the model at `url`."""
    return f"curl {options}{shlex.quote(f'{url}/infer')} -d {shlex.quote(write_json(request).decode())}"


def call_to_try(request: dict[str, Any], url: str, options: str) -> str:
    """The same in a line of some length at most: a request that is longer comes from the model's description."""
    if len(write_json(request)) <= LONGEST_BODY:
        return curl(request, url, options)
    members = ("paths", f"{urlsplit(url).path}/infer", "post", "requestBody", "content", "application/json", "example")
    found = "".join(f"[{write_json(each).decode()}]" for each in members)
    take = shlex.quote(f"import json, sys; print(json.dumps(json.load(sys.stdin){found}))")
    description, infer = shlex.quote(f"{url}/docs/openapi.json"), shlex.quote(f"{url}/infer")
    return f"curl --silent {options}{description} | python3 -c {take} | curl {options}{infer} -d @-"
