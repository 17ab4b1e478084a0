"""What clients send over REST: marshmallow declares the envelope, `load` checks it, and `data` passes untouched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from marshmallow import EXCLUDE, Schema, ValidationError, fields

from app.binary import Buffer
from app.contract import listed
from app.datatypes import check_shape, datatype_of
from app.envelope import read_json, read_tensors, split_body, tensor_head
from app.errors import InvalidInput, shorten
from app.largejson import read_numbers
from app.types import (
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Parameters,
    RequestInput,
    RequestOutput,
    check_few,
)

# Of a request's faults; a refusal's text is cut short, and each fault costs far more than what it is about.
FAULTS_AT_MOST = 16
# Parameters that switch something on or off; what any other may be.
FLAGS = ("binary_data", "binary_data_output")
PLAIN = (str, int, float)


class Checked(fields.Field):
    """A field that one function, which `load` calls, checks and converts; one that is not required may be null."""

    def __init__(self, check: Callable[[Any], Any], required: bool = False):
        super().__init__(required=required, allow_none=not required)
        self.check = check


def untouched(value: Any) -> Any:
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"expected a string, got {shorten(repr(value))}")
    return value


def parameters(value: Any) -> Parameters:
    """Strings, numbers and booleans by name (R17)."""
    if not isinstance(value, dict):
        raise InvalidInput(f"expected an object, got {shorten(repr(value))}")
    for name, each in value.items():
        if name == "binary_data_size":
            fits, expected = type(each) is int and each >= 0, "an integer of at least 0"
        elif name in FLAGS:
            fits, expected = isinstance(each, bool), "true or false"
        else:
            fits, expected = isinstance(each, PLAIN), "a string, number or boolean"
        if not fits:
            raise InvalidInput(f'"{shorten(name)}": expected {expected}, got {shorten(repr(each))}')
    return value


class Envelope(Schema):
    class Meta:
        unknown = EXCLUDE

    parameters = Checked(parameters)


class RequestInputSchema(Envelope):
    name = Checked(text, required=True)
    shape = Checked(check_shape, required=True)
    datatype = Checked(datatype_of, required=True)
    data = Checked(untouched)


class RequestOutputSchema(Envelope):
    name = Checked(text, required=True)


def load(schema: Schema, value: Any) -> dict[str, Any]:
    """What the checks of the fields of `schema` make of `value`, None where there is nothing.

    In the place of the schema's own load(), which takes 20 µs more and knows no `check`. Raises ValidationError with
    the messages of every field.
    """
    if not isinstance(value, dict):
        raise ValidationError({"_schema": [f"expected an object, got {shorten(repr(value))}"]})
    made: dict[str, Any] = {}
    errors: dict[str, Any] = {}
    members: Mapping[str, Any] = schema.load_fields
    for name, member in members.items():
        given = value.get(name)
        if given is None and not member.required:
            made[name] = None
            continue
        try:
            made[name] = member.check(given)
        except ValidationError as error:
            errors[name] = error.messages
        except InvalidInput as error:
            fault = str(error).removeprefix(f"{name}: ") if name in value else f"missing; got {shorten(listed(value))}"
            errors[name] = [fault]
    if errors:
        raise ValidationError(errors)
    return made


class Each(fields.List):
    """A list of objects of one schema; of what is wrong with them, the first FAULTS_AT_MOST are told."""

    inner: fields.Nested

    def check(self, value: Any) -> list[dict[str, Any]]:
        """Raises InvalidInput where `value` is no list, ValidationError for what is wrong with its elements."""
        if not isinstance(value, list):
            raise InvalidInput(f"expected a list, got {shorten(repr(value))}")
        check_few(str(self.name), len(value))
        made: list[dict[str, Any]] = []
        errors: dict[int, Any] = {}
        for index, element in enumerate(value):
            try:
                made.append(load(self.inner.schema, element))
            except ValidationError as error:
                errors[index] = error.messages
                if len(errors) == FAULTS_AT_MOST:
                    break
        if errors:
            raise ValidationError(errors)
        return made


class InferenceRequestSchema(Envelope):
    id = Checked(text)
    inputs = Each(fields.Nested(RequestInputSchema), required=True)
    outputs = Each(fields.Nested(RequestOutputSchema), allow_none=True)


INFERENCE_REQUEST = InferenceRequestSchema()


def read_request(body: bytes, header_length: int | None = None) -> InferenceRequest:
    """The request that `body` holds: JSON of `header_length` bytes, then blobs (B3); all JSON where that is None.

    Raises InvalidInput for whatever is wrong with the body alone.
    """
    json, blobs = split_body(body, header_length)
    if (payload := read_numbers(json)) is not None:
        with suppress(InvalidInput):  # which the other reader has the words for
            return make_request(payload, blobs)
    return make_request(read_json(json), blobs)


def make_request(payload: Any, blobs: Buffer) -> InferenceRequest:
    """The request of a parsed envelope; InvalidInput for whatever is wrong with it."""
    try:
        envelope = load(INFERENCE_REQUEST, payload)
    except ValidationError as error:
        raise InvalidInput("; ".join(faults(error.messages, payload))) from None
    return InferenceRequest(
        read_tensors(envelope["inputs"], blobs, RequestInput),
        id=envelope["id"],
        parameters=envelope["parameters"] or {},
        outputs=[RequestOutput(each["name"], each["parameters"] or {}) for each in envelope["outputs"] or ()],
    )


def read_index_request(body: bytes) -> bool:
    """Whether only models that are ready are asked for (T2); an empty body asks for all. Raises InvalidInput."""
    asked = read_json(body) if body else {}
    ready = asked.get("ready") if isinstance(asked, dict) else asked
    if not isinstance(asked, dict) or not isinstance(ready, bool | None):
        raise InvalidInput(f'expected an object, its "ready" true or false; got {shorten(repr(asked))}')
    return bool(ready)


def faults(messages: Any, payload: Any) -> Iterator[str]:
    """The messages of a ValidationError, each led by what it is about."""
    for member, found in messages.items():
        if not isinstance(found, dict):
            yield about(member, found)
            continue
        for index, inner in found.items():
            element = payload[member][index]
            name = element.get("name") if isinstance(element, dict) else None
            subject = f'{member[:-1]} "{name}"' if isinstance(name, str) else f"{member}[{index}]"
            yield from (f"{subject}: {about(*each)}" for each in inner.items())


def about(member: str, found: list[str]) -> str:
    return "; ".join(found) if member == "_schema" else f"{member}: {'; '.join(found)}"


def binary_outputs(request: InferenceRequest, response: InferenceResponse) -> set[str]:
    """The names of the outputs that go out as bytes (B6)."""
    default = request.parameters.get("binary_data_output", False)
    asked = {output.name: output.parameters.get("binary_data", default) for output in request.outputs}
    return {output.name for output in response.outputs if asked.get(output.name, default)}


def write_metadata(metadata: ModelMetadata) -> dict[str, Any]:
    """The model's metadata as R6 has it."""
    return {
        "name": metadata.name,
        "versions": [metadata.version],
        "platform": metadata.platform,
        "inputs": [tensor_head(tensor) for tensor in metadata.inputs],
        "outputs": [tensor_head(tensor) for tensor in metadata.outputs],
    }
