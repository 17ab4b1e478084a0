"""Example requests that match METADATA: for the warm-up, the documentation and the startup."""

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

# Sample values of BYTES by content type. Other content types have "text".
SAMPLE_TEXTS = {
    "datetime": "2024-01-31T12:00:00",
    "base64": "dGV4dA==",
    "bytes": "dGV4dA==",
    "pd_json": '"text"',
}
# Longer commands are hard to read. Linux limits an argument to 128 KiB.
MAX_BODY = 2**11


def make_example(metadata: ModelMetadata, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an infer request in JSON form, with the `given` values by input or with sample values.

    Without given values, optional inputs are omitted if there are other inputs. Variable dimensions
    are 1.
    """
    if given is None:
        tensors = metadata.required_inputs or metadata.inputs[:1]
        given = {tensor.name: sample(tensor) for tensor in tensors}
    inputs = []
    for tensor in metadata.inputs:
        if tensor.name in given:
            inputs.append(to_json_input(tensor, given[tensor.name]))
    return {"inputs": inputs}


def sample(tensor: MetadataTensor) -> np.ndarray:
    """Return an array of sample values, in which variable dimensions are 1."""
    shape = [abs(size) for size in tensor.shape]
    datatype = datatype_of(tensor.datatype)
    value: Any = 1
    if datatype.is_text:
        value = SAMPLE_TEXTS.get(tensor.content_type or "", "text")
    elif datatype.is_boolean:
        value = True
    return np.full(shape, value, datatype.dtype)


def to_json_input(tensor: MetadataTensor, values: Any) -> dict[str, Any]:
    """Return the JSON object of an input.

    If JSON cannot represent the values, use sample values.
    """
    example = make_input(tensor, values)
    array = example.wire_data(is_binary=False)
    try:
        json_text = write_json(to_json(array, datatype_of(tensor.datatype)))
    except InvalidInput:  # bytes that are not UTF-8, or infinity
        return to_json_input(tensor, sample(tensor))
    return {
        "name": tensor.name,
        "shape": example.shape,
        "datatype": tensor.datatype,
        "data": json.loads(json_text),  # orjson writes FP32 with the fewest digits
    }


def make_input(tensor: MetadataTensor, values: Any) -> RequestInput:
    """Return `values` as an input. In a floating-point tensor, None is NaN, like null in JSON."""
    if datatype_of(tensor.datatype).is_float:
        values = _none_to_nan(values)
    try:
        example = RequestInput(tensor.name, tensor.datatype, data=values)
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None
    apply_declarations([example], [tensor])
    return example


def _none_to_nan(values: Any) -> Any:
    """Return an array of floats, with NaN for None, if `values` contain None.

    Return other values unchanged, even if they are not numbers: RequestInput reports those.
    """
    with suppress(InvalidInput, TypeError, ValueError):
        array = plain_array(values)
        contains_none = array.dtype == object  # NumPy has no number for it
        if contains_none:
            return array.astype(np.float64)  # this converts None to NaN
    return values


def apply_declarations(tensors: Iterable[Tensor], declared: Iterable[MetadataTensor]) -> None:
    """Add the declared content types and missing values, so that every form has the same meaning
    (C12, C13).
    """
    declarations = {declaration.name: declaration for declaration in declared}
    for tensor in tensors:
        declaration = declarations.get(tensor.name)
        if declaration is not None:
            tensor.parameters = Parameters({**declaration.parameters, **tensor.parameters})
            tensor.missing = declaration.missing


def curl_command(request: dict[str, Any], url: str, settings: Settings) -> str:
    """Return a curl command that sends `request` to the model at `url`.

    It reads a long request from a file.
    """
    options = ""
    if settings.tls_cert_file:
        options += "--insecure "  # the certificate does not match the local address
    if settings.tls_client_ca_file:
        options += "--cert CLIENT.crt --key CLIENT.key "
    if settings.api_keys_file:
        options += '-H "Authorization: Bearer $API_KEY" '

    body = write_json(request).decode()
    if len(body) <= MAX_BODY:
        data = shlex.quote(body)
    else:
        data = f"@request.json  # {url}/docs/openapi.json has an example"
    return f"curl {options}{shlex.quote(f'{url}/infer')} -d {data}"
