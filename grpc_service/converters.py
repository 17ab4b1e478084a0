"""protobuf messages ↔ types. A tensor travels raw, as bytes, or typed, in the contents field of its datatype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message

from app.binary import Buffer, from_bytes, to_bytes
from app.datatypes import (
    DATATYPES,
    Datatype,
    bytes_array,
    check_count,
    check_shape,
    datatype_of,
    narrow,
    object_array,
    reshape,
)
from app.errors import InvalidInput, shorten
from app.types import (
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
    Tensor,
)
from grpc_service.messages import InferTensorContents, ModelInferRequest, ModelInferResponse, ModelMetadataResponse
from grpc_service.wire import put_behind, take_out, varint

Made = TypeVar("Made", bound=Tensor)
Write = TypeVar("Write", bound=Callable[..., bytes])

RAW_INPUTS = ModelInferRequest.DESCRIPTOR.fields_by_name["raw_input_contents"].number
RAW_OUTPUTS = ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number

# Fields whose packed form on the wire is the array's own bytes.
PACKED = {"bool_contents", "fp32_contents", "fp64_contents"}


def parse_request(body: bytes) -> tuple[Any, Sequence[Buffer]]:
    """The message, and the raw entries of its inputs. Raises DecodeError where it is none."""
    body, raws = take_out(body, RAW_INPUTS)
    message = ModelInferRequest.FromString(body)
    return message, raws or message.raw_input_contents


def read_request(message: Any, raws: Sequence[Buffer]) -> InferenceRequest:
    """The request in a message; InvalidInput for whatever is wrong with the message alone (G2, G3)."""
    return InferenceRequest(
        read_tensors(message.inputs, raws, RequestInput),
        outputs=[RequestOutput(each.name, read_parameters(each.parameters)) for each in message.outputs],
        **read_head(message),
    )


def read_response(body: bytes) -> InferenceResponse:
    """The response in a message; InvalidInput as for a request."""
    body, raws = take_out(body, RAW_OUTPUTS)
    message = ModelInferResponse.FromString(body)
    outputs = read_tensors(message.outputs, raws or message.raw_output_contents, ResponseOutput)
    return InferenceResponse(outputs, **read_head(message))


def read_head(message: Any) -> dict[str, Any]:
    """What a request and a response have alike beside their tensors; empty text is none."""
    return {
        "model_name": message.model_name,
        "model_version": message.model_version or None,
        "id": message.id or None,
        "parameters": read_parameters(message.parameters),
    }


def read_tensors(tensors: Any, raws: Any, make: type[Made]) -> list[Made]:
    kind = make.kind
    if raws and len(raws) != len(tensors):
        raise InvalidInput(f"raw_{kind}_contents: expected one entry an {kind}, {len(tensors)}; got {len(raws)}")
    made = []
    for index, tensor in enumerate(tensors):
        try:
            array = read_array(tensor, raws[index] if raws else None, kind)
            made.append(make(tensor.name, tensor.datatype, data=array, parameters=read_parameters(tensor.parameters)))
        except InvalidInput as error:
            raise error.about(f'{kind} "{tensor.name}"') from None
    return made


def read_array(tensor: Any, raw: Buffer | None, kind: str) -> np.ndarray:
    datatype, shape = datatype_of(tensor.datatype), check_shape(list(tensor.shape))
    if raw is None:
        return from_contents(tensor.contents, datatype, shape)
    if tensor.contents.ListFields():
        raise InvalidInput(f"data: expected no contents beside raw_{kind}_contents")
    return from_bytes(raw, datatype, shape)


def from_contents(contents: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """The tensor of `shape` in `contents`; InvalidInput for another field or count than it needs (G3)."""
    if datatype.contents is None:
        raise InvalidInput(f"data: {datatype.name} has no contents field; send it in raw_input_contents")
    for field, _ in contents.ListFields():
        if field.name != datatype.contents:
            raise InvalidInput(f"data: {datatype.name} goes in {datatype.contents}, got {field.name}")
    values = getattr(contents, datatype.contents)
    check_count(shape, len(values))
    if datatype.kind == "O":
        return reshape(object_array(values), shape)
    array = np.asarray(values, CONTENTS_DTYPES.get(datatype.contents, datatype.dtype))
    if array.dtype != datatype.dtype:
        array = narrow(array, datatype)
    return reshape(array, shape)


# The fields that serve several datatypes, in 32 bits.
CONTENTS_DTYPES = {"int_contents": np.dtype("<i4"), "uint_contents": np.dtype("<u4")}


def to_contents(contents: Any, array: np.ndarray, datatype: Datatype) -> None:
    """Puts the elements of `array` into the field of its datatype. Raises InvalidInput for a None."""
    if not array.size:
        return
    if datatype.contents in PACKED:
        octets = to_bytes(array, datatype)
        field = InferTensorContents.DESCRIPTOR.fields_by_name[datatype.contents]
        contents.MergeFromString(varint(field.number << 3 | 2) + varint(len(octets)) + octets)
        return
    elements = (bytes_array(array) if datatype.kind == "O" else array).ravel().tolist()
    if None in elements:
        raise InvalidInput("data: null has no binary form; JSON has one, and so has content type pd_json")
    getattr(contents, str(datatype.contents)).extend(elements)


def sayable(write: Write) -> Write:
    """`write`, its complaints of what no message holds (text that is no Unicode, 65-bit integers) as InvalidInput."""

    @wraps(write)
    def checked(*args: Any, **options: Any) -> Any:
        try:
            return write(*args, **options)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"no message can say it: {error}") from None

    return checked  # type: ignore[return-value]


@sayable
def write_request(request: InferenceRequest, raw: bool = True) -> bytes:
    """The message of `request`; its tensors raw, or typed where none is FP16."""
    message = ModelInferRequest()
    write_head(message, request)
    blobs = write_tensors(message.inputs, request.inputs, raw)
    for output in request.outputs:
        write_parameters(message.outputs.add(name=output.name).parameters, output.parameters)
    return put_behind(message.SerializeToString(), RAW_INPUTS, blobs)


@sayable
def write_response(response: InferenceResponse, raw: bool) -> bytes:
    """The message of `response`; all its tensors raw where `raw` says so, or where one is FP16 (G4)."""
    message = ModelInferResponse()
    write_head(message, response)
    blobs = write_tensors(message.outputs, response.outputs, raw)
    return put_behind(message.SerializeToString(), RAW_OUTPUTS, blobs)


def write_head(message: Any, envelope: InferenceRequest | InferenceResponse) -> None:
    for member in ("model_name", "model_version", "id"):
        setattr(message, member, getattr(envelope, member) or "")
    write_parameters(message.parameters, envelope.parameters)


def write_tensors(field: Any, tensors: Sequence[Tensor], raw: bool) -> list[Buffer]:
    """Adds the tensors to a field of the message; the blobs of those that go raw are still to be put behind it."""
    blobs: list[Buffer] = []
    raw = raw or any(DATATYPES[tensor.datatype].contents is None for tensor in tensors)
    for tensor in tensors:
        datatype = DATATYPES[tensor.datatype]
        member = field.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        write_parameters(member.parameters, tensor.parameters)
        try:
            if raw:
                blobs.append(to_bytes(tensor.data, datatype))
            else:
                to_contents(member.contents, tensor.data, datatype)
        except InvalidInput as error:
            raise error.about(f'{tensor.kind} "{tensor.name}"') from None
    return blobs


def read_parameters(parameters: Mapping[str, Any]) -> Parameters:
    """Plain values by name (R17); InvalidInput for an InferParameter that holds none."""
    values: Parameters = {}
    if not parameters:
        return values
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise InvalidInput(f'parameters: "{name}": expected a string, number or boolean, got none')
        values[name] = getattr(parameter, choice)
    return values


def write_parameters(parameters: Any, values: Parameters) -> None:
    for name, value in values.items():
        if isinstance(value, bool):
            parameters[name].bool_param = value
        elif isinstance(value, int):
            setattr(parameters[name], "int64_param" if value < 2**63 else "uint64_param", value)
        elif isinstance(value, float):
            parameters[name].double_param = value
        elif isinstance(value, str):
            parameters[name].string_param = value
        else:
            raise InvalidInput(
                f'parameters: "{name}": expected a string, number or boolean, got {shorten(repr(value))}'
            )


def write_metadata(metadata: ModelMetadata) -> Message:
    message = ModelMetadataResponse(name=metadata.name, versions=[metadata.version], platform=metadata.platform)
    for field, tensors in ((message.inputs, metadata.inputs), (message.outputs, metadata.outputs)):
        for tensor in tensors:
            field.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    return message
