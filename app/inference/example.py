"""An example request that matches METADATA, for the warm-up, the documentation and the startup message."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from app.config.settings import Settings
from app.protocol.datatypes import datatype_of
from app.protocol.errors import InvalidInput
from app.protocol.http_body import write_json
from app.protocol.json_tensors import to_json
from app.protocol.types import MetadataTensor, ModelMetadata, RequestInput

# Values by content type, and by datatype if the content type has none.
EXAMPLES: dict[str | None, Any] = {
    "datetime": "2024-01-31T12:00:00",
    "base64": "dGV4dA==",
    "pd_json": '"text"',
    "BOOL": True,
    "BYTES": "text",
}
# A longer command cannot be read, and from 128 KiB on it cannot be executed.
MAX_BODY = 2**11


def make_example(
    metadata: ModelMetadata, optional: Container[str] = (), given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an infer request in JSON form, with the `given` values by input or with sample values.

    Without given values, optional inputs are left out if there are others. A variable dimension is 1.
    """
    if given is None:
        required = [tensor for tensor in metadata.inputs if tensor.name not in optional]
        given = {tensor.name: sample(tensor) for tensor in required or metadata.inputs[:1]}
    return {"inputs": [to_json_input(tensor, given[tensor.name]) for tensor in metadata.inputs if tensor.name in given]}


def sample(tensor: MetadataTensor) -> np.ndarray:
    """Return the smallest values that match."""
    shape = [abs(dimension) for dimension in tensor.shape]
    value = EXAMPLES.get(tensor.content_type, EXAMPLES.get(tensor.datatype, 1))
    return np.full(shape, value, datatype_of(tensor.datatype).dtype)


def to_json_input(tensor: MetadataTensor, values: Any) -> dict[str, Any]:
    made = make_input(tensor, values)
    try:  # orjson writes FP32 in its shortest form
        data = json.loads(write_json(to_json(made.data, datatype_of(tensor.datatype))))
    except InvalidInput:  # bytes that are not text have no JSON form
        return to_json_input(tensor, sample(tensor))
    return {"name": tensor.name, "shape": made.shape, "datatype": tensor.datatype, "data": data}


def make_input(tensor: MetadataTensor, values: Any) -> RequestInput:
    """Return the owner's values as an input. None in a floating-point tensor is NaN, like null in JSON."""
    try:
        if datatype_of(tensor.datatype).kind == "f":
            with suppress(TypeError, ValueError):  # RequestInput raises the exact error
                array = np.asarray(values)
                values = array.astype(np.float64) if array.dtype.kind == "O" else values
        return RequestInput(tensor.name, tensor.datatype, data=values)
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None


def curl_command(request: dict[str, Any], url: str, settings: Settings) -> str:
    """Return the command that sends `request` to the model at `url`. A long request comes from a file."""
    options = {
        "--insecure ": settings.tls_cert_file,  # the certificate is for another name than this address
        "--cert CLIENT.crt --key CLIENT.key ": settings.tls_client_ca_file,
        '-H "Authorization: Bearer $API_KEY" ': settings.api_keys_file,
    }
    needed = "".join(option for option, setting in options.items() if setting)
    body = write_json(request).decode()
    source = shlex.quote(body) if len(body) <= MAX_BODY else f"@request.json  # {url}/docs/openapi.json has an example"
    return f"curl {needed}{shlex.quote(f'{url}/infer')} -d {source}"
