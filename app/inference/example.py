"""Example requests that match METADATA, for the warm-up, the documentation and the startup message."""

import json
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from app.config.settings import Settings
from app.protocol.datatypes import datatype_of, plain_array
from app.protocol.envelope import Parameters
from app.protocol.errors import InvalidInput
from app.protocol.http_body import write_json
from app.protocol.json_tensors import to_json
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput, Tensor

# Sample values by content type, and by datatype for other content types.
EXAMPLES: dict[str | None, Any] = {
    "datetime": "2024-01-31T12:00:00",
    "base64": "dGV4dA==",
    "bytes": "dGV4dA==",
    "pd_json": '"text"',
    "BOOL": True,
    "BYTES": "text",
}
# Longer commands are hard to read. Linux limits an argument to 128 KiB.
MAX_BODY = 2**11


def make_example(metadata: ModelMetadata, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an infer request in JSON form, with the `given` values by input or with sample values.

    Without given values, optional inputs are omitted if there are other inputs. Variable dimensions are 1.
    """
    if given is None:
        tensors = metadata.required_inputs or metadata.inputs[:1]
        given = {tensor.name: sample(tensor) for tensor in tensors}
    return {
        "inputs": [
            to_json_input(tensor, given[tensor.name])
            for tensor in metadata.inputs
            if tensor.name in given
        ]
    }


def sample(tensor: MetadataTensor) -> np.ndarray:
    """Return an array of sample values, in which variable dimensions are 1."""
    shape = [abs(dimension) for dimension in tensor.shape]
    value = EXAMPLES.get(tensor.content_type, EXAMPLES.get(tensor.datatype, 1))
    return np.full(shape, value, datatype_of(tensor.datatype).dtype)


def to_json_input(tensor: MetadataTensor, values: Any) -> dict[str, Any]:
    made = make_input(tensor, values)
    try:  # orjson writes FP32 with the fewest digits
        data = json.loads(
            write_json(to_json(made.wire_data(is_binary=False), datatype_of(tensor.datatype)))
        )
    except InvalidInput:  # JSON cannot represent bytes that are not UTF-8
        return to_json_input(tensor, sample(tensor))
    return {"name": tensor.name, "shape": made.shape, "datatype": tensor.datatype, "data": data}


def make_input(tensor: MetadataTensor, values: Any) -> RequestInput:
    """Return `values` as an input. In a floating-point tensor, None is NaN, like null in JSON."""
    try:
        if datatype_of(tensor.datatype).is_float:
            with suppress(
                InvalidInput, TypeError, ValueError
            ):  # RequestInput reports invalid values
                array = plain_array(values)
                values = array.astype(np.float64) if array.dtype.kind == "O" else values
        made = RequestInput(tensor.name, tensor.datatype, data=values)
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None
    apply_declarations([made], [tensor])
    return made


def apply_declarations(tensors: Iterable[Tensor], declared: Iterable[MetadataTensor]) -> None:
    """Add the declared content types and missing values, so that every form has the same meaning (C12, C13)."""
    by_name = {each.name: each for each in declared}
    for tensor in tensors:
        if found := by_name.get(tensor.name):
            tensor.parameters = Parameters({**found.parameters, **tensor.parameters})
            tensor.missing = found.missing


def curl_command(request: dict[str, Any], url: str, settings: Settings) -> str:
    """Return a curl command that sends `request` to the model at `url`. It reads a long request from a file."""
    options = {
        "--insecure ": settings.tls_cert_file,  # the certificate does not match the local address
        "--cert CLIENT.crt --key CLIENT.key ": settings.tls_client_ca_file,
        '-H "Authorization: Bearer $API_KEY" ': settings.api_keys_file,
    }
    needed = "".join(option for option, setting in options.items() if setting)
    body = write_json(request).decode()
    source = (
        shlex.quote(body)
        if len(body) <= MAX_BODY
        else f"@request.json  # {url}/docs/openapi.json has an example"
    )
    return f"curl {needed}{shlex.quote(f'{url}/infer')} -d {source}"
