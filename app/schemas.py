"""The JSON envelope and the blobs behind it ↔ types. marshmallow checks the envelope; `data` passes it untouched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from marshmallow import EXCLUDE, Schema, ValidationError, fields

from app.binary import from_bytes, to_bytes
from app.datatypes import DATATYPES, check_shape, datatype_of
from app.errors import InvalidInput, shorten
from app.jsontensor import from_json, to_json
from app.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    ModelMetadata,
    Parameters,
    RequestInput,
    RequestOutput,
    Tensor,
)

DEEPEST = 64
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
TO_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Checked(fields.Field):
    """A field that one function checks, raising InvalidInput, and converts."""

    def __init__(self, check: Callable[[Any], Any], **options: Any):
        super().__init__(**options)
        self.check = check

    def _deserialize(self, value: Any, attr: str | None, data: Any, **options: Any) -> Any:
        try:
            return self.check(value)
        except InvalidInput as error:
            raise ValidationError(str(error).removeprefix(f"{attr}: ")) from None


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"expected a string, got {shorten(repr(value))}")
    return value


def parameters(value: Any) -> Parameters:
    """Strings, numbers and booleans by name (R17)."""
    if not isinstance(value, dict):
        raise InvalidInput(f"expected an object, got {shorten(repr(value))}")
    for name, each in value.items():
        if not isinstance(each, str | int | float):
            raise InvalidInput(f'"{shorten(name)}": expected a string, number or boolean, got {shorten(repr(each))}')
    for name in ("binary_data", "binary_data_output"):
        if not isinstance(value.get(name, True), bool):
            raise InvalidInput(f'"{name}": expected true or false, got {shorten(repr(value[name]))}')
    size = value.get("binary_data_size", 0)
    if type(size) is not int or size < 0:
        raise InvalidInput(f'"binary_data_size": expected an integer of at least 0, got {shorten(repr(size))}')
    return value


class Envelope(Schema):
    error_messages = {"type": "expected an object"}
    parameters = Checked(parameters, load_default=None, allow_none=True)

    class Meta:
        unknown = EXCLUDE


class RequestInputSchema(Envelope):
    name = Checked(text, required=True)
    shape = Checked(check_shape, required=True)
    datatype = Checked(datatype_of, required=True)
    data = fields.Raw(allow_none=True, load_default=None)


class RequestOutputSchema(Envelope):
    name = Checked(text, required=True)


class InferenceRequestSchema(Envelope):
    id = Checked(text, load_default=None, allow_none=True)
    inputs = fields.List(fields.Nested(RequestInputSchema), required=True)
    outputs = fields.List(fields.Nested(RequestOutputSchema), load_default=list, allow_none=True)


INFERENCE_REQUEST = InferenceRequestSchema()


def read_request(body: bytes, header_length: int | None = None) -> InferenceRequest:
    """The request that `body` holds: JSON of `header_length` bytes, then blobs (B3); all JSON where that is None.

    Raises InvalidInput for whatever is wrong with the body alone.
    """
    json, blobs = (body, b"") if header_length is None else (body[:header_length], memoryview(body)[header_length:])
    payload = read_json(json)
    try:
        envelope = INFERENCE_REQUEST.load(payload)
    except ValidationError as error:
        raise InvalidInput("; ".join(faults(error.normalized_messages(), payload))) from None
    inputs, position = [], 0
    for each in envelope["inputs"]:
        size = (each["parameters"] or {}).get("binary_data_size")
        try:
            inputs.append(read_input(each, size, blobs[position : position + (size or 0)]))
        except InvalidInput as error:
            raise error.about(f'input "{each["name"]}"') from None
        position += size or 0
    if position != len(blobs):
        raise InvalidInput(f"{len(blobs) - position} bytes follow the last input's data")
    return InferenceRequest(
        inputs,
        id=envelope["id"],
        parameters=envelope["parameters"] or {},
        outputs=[RequestOutput(each["name"], each["parameters"] or {}) for each in envelope["outputs"] or ()],
    )


def read_input(envelope: dict[str, Any], size: int | None, blob: bytes | memoryview) -> RequestInput:
    """The input whose data is in `envelope`, or in `blob` where it says binary_data_size (B2)."""
    datatype, shape, data = envelope["datatype"], envelope["shape"], envelope["data"]
    if size is None:
        if data is None:
            raise InvalidInput("data: missing, and so is binary_data_size")
        array = from_json(data, datatype, shape)
    else:
        if data is not None:
            raise InvalidInput("data: expected none beside binary_data_size")
        if len(blob) != size:
            raise InvalidInput(f"data: binary_data_size is {size}, and {len(blob)} bytes are left of the body")
        array = from_bytes(blob, datatype, shape)
    return RequestInput(envelope["name"], datatype.name, data=array, parameters=envelope["parameters"])


def read_json(text: bytes) -> Any:
    """The JSON value of `text`; InvalidInput where it is none, or nested deeper than 64 (R20)."""
    if not text:
        raise InvalidInput("the body is empty; expected a JSON object")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if text.count(b"[") + text.count(b"{") > DEEPEST and depth(text) > DEEPEST:
        raise InvalidInput(f"the body is nested deeper than {DEEPEST}")
    return value


def depth(text: bytes) -> int:
    """How deep valid JSON is nested: how often its innermost brackets can be taken away."""
    brackets, levels = STRING.sub(b"", text).translate(TO_SQUARE, NO_BRACKETS), 0
    while brackets:
        brackets, levels = brackets.replace(b"[]", b""), levels + 1
    return levels


def faults(messages: Any, payload: Any) -> Iterator[str]:
    """marshmallow's messages, each led by what it is about."""
    for member, found in messages.items():
        if not isinstance(found, dict):
            yield about(member, found)
            continue
        for index, inner in found.items():
            element = payload[member][index]
            name = element.get("name") if isinstance(element, dict) else None
            subject = f'{member[:-1]} "{name}"' if isinstance(name, str) else f"{member}[{index}]"
            inner = inner if isinstance(inner, dict) else {"_schema": inner}
            yield from (f"{subject}: {about(*each)}" for each in inner.items())


def about(member: str, found: list[str]) -> str:
    return "; ".join(found) if member == "_schema" else f"{member}: {'; '.join(found)}"


def binary_outputs(request: InferenceRequest, response: InferenceResponse) -> set[str]:
    """The names of the outputs that go out as bytes (B6)."""
    default = request.parameters.get("binary_data_output", False)
    asked = {output.name: output.parameters.get("binary_data", default) for output in request.outputs}
    return {output.name for output in response.outputs if asked.get(output.name, default)}


def write_response(response: InferenceResponse, binary: set[str], nonfinite: str) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON where blobs follow it: those of the outputs named in `binary` (B7).

    `nonfinite` is the setting JSON_NONFINITE. Raises InvalidInput where an output has no JSON form (R12, R14).
    """
    blobs: list[bytes] = []
    outputs = []
    for output in response.outputs:
        member = tensor_head(output)
        try:
            if output.name in binary:
                blobs.append(to_bytes(output.data, DATATYPES[output.datatype]))
                member["parameters"] = {**output.parameters, "binary_data_size": len(blobs[-1])}
            else:
                member["data"] = to_json(output.data, DATATYPES[output.datatype], nonfinite)
        except InvalidInput as error:
            raise error.about(f'output "{output.name}"') from None
        outputs.append(member)
    envelope: dict[str, Any] = {"model_name": response.model_name, "model_version": response.model_version}
    if response.id is not None:
        envelope["id"] = response.id
    if response.parameters:
        envelope["parameters"] = response.parameters
    json = write_json({**envelope, "outputs": outputs})
    return (b"".join([json, *blobs]), len(json)) if binary else (json, None)


def tensor_head(tensor: Tensor | MetadataTensor) -> dict[str, Any]:
    """All of a tensor but its data."""
    head: dict[str, Any] = {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
    if tensor.parameters:
        head["parameters"] = tensor.parameters
    return head


def write_metadata(metadata: ModelMetadata) -> dict[str, Any]:
    """The model's metadata as R6 has it."""
    return {
        "name": metadata.name,
        "versions": [metadata.version],
        "platform": metadata.platform,
        "inputs": [tensor_head(tensor) for tensor in metadata.inputs],
        "outputs": [tensor_head(tensor) for tensor in metadata.outputs],
    }


def write_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
