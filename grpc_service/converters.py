"""Conversion between protobuf messages and types. Tensor data is raw bytes or typed `contents` (G3)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from app.protocol.binary_tensors import Buffer, from_bytes, to_bytes
from app.protocol.datatypes import (
    Datatype,
    as_bytes,
    cast_in_range,
    check_count,
    check_shape,
    datatype_of,
    object_array,
    reshape,
)
from app.protocol.envelope import Parameters, check_number_of_tensors, parameter_error
from app.protocol.errors import InvalidInput, NoBinaryForm
from app.protocol.messages import InferenceRequest, InferenceResponse, RequestOutput
from app.protocol.tensors import RequestInput, ResponseOutput, Tensor
from grpc_service.messages import (
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
    field_number,
)
from grpc_service.wire import encode_field, extract_large_field

Made = TypeVar("Made", bound=Tensor)

INPUTS, RAW_INPUTS = (
    field_number(ModelInferRequest, name) for name in ("inputs", "raw_input_contents")
)
OUTPUTS, RAW_OUTPUTS = (
    field_number(ModelInferResponse, name) for name in ("outputs", "raw_output_contents")
)

# Requests and responses share their field numbers, except for the tensors. So do inputs and outputs.
InferInputTensor = ModelInferRequest.InferInputTensor
CONTENTS = field_number(InferInputTensor, "contents")
# For at most this number of elements, a list is faster than protobuf's array.
FEW = 32
# Fields whose encoding in a message equals the bytes of the array.
PACKED = {
    name: field_number(InferTensorContents, name)
    for name in ("bool_contents", "fp32_contents", "fp64_contents")
}
# Fields shared by several datatypes. Their elements have 32 bits.
CONTENTS_DTYPES = {"int_contents": np.dtype("<i4"), "uint_contents": np.dtype("<u4")}


def parse_request(body: bytes, without_copies: bool = True) -> tuple[Any, Sequence[Buffer]]:
    """Return the message and its raw_input_contents, as views of a large `body` by default. Raise DecodeError."""
    body, raws = extract_large_field(body, RAW_INPUTS) if without_copies else (body, [])
    message = ModelInferRequest.FromString(body)
    return message, raws or message.raw_input_contents[:]


def read_request(message: Any, raws: Sequence[Buffer]) -> InferenceRequest:
    """Return the request. Raise InvalidInput if it is invalid for any model (G2, G3)."""
    inputs = read_tensors(message.inputs, raws, RequestInput)
    outputs = []
    if asked := message.outputs:
        check_number_of_tensors("outputs", len(asked))
        outputs = [RequestOutput(each.name, read_parameters(each.parameters)) for each in asked[:]]
    return InferenceRequest(inputs, *read_head(message), outputs)


def read_response(body: bytes) -> InferenceResponse:
    """Return the response. Raise InvalidInput if it is invalid."""
    body, raws = extract_large_field(body, RAW_OUTPUTS)
    message = ModelInferResponse.FromString(body)
    outputs = read_tensors(message.outputs, raws or message.raw_output_contents[:], ResponseOutput)
    return InferenceResponse(outputs, *read_head(message))


def read_head(message: Any) -> tuple[str, str | None, str | None, Parameters]:
    """Return the model's name and version, the id and the parameters, in the order of the fields of both classes.

    The version and the id are None if empty. Positional arguments take half the time of keywords.
    """
    parameters = read_parameters(message.parameters)
    return message.model_name, message.model_version or None, message.id or None, parameters


def read_tensors(tensors: Any, raws: Any, make: type[Made]) -> list[Made]:
    """Return tensors of the class `make`. `raws` contains the data of each tensor, or is empty for typed contents."""
    kind = make.kind
    check_number_of_tensors(f"{kind}s", len(tensors))
    if raws and len(raws) != len(tensors):
        got = f"{len(raws)} ({kind}s: {len(tensors)})"
        raise InvalidInput(
            subject=f"raw_{kind}_contents", expected=f"one entry per {kind}", got=got
        )
    made = []
    for tensor, raw in zip(tensors[:], raws or repeat(None)):  # noqa: B905 - [:] is twice as fast
        try:
            array = read_array(tensor, raw, kind)
            made.append(
                make.of(tensor.name, tensor.datatype, array, read_parameters(tensor.parameters))
            )
        except InvalidInput as error:
            raise error.about(kind, tensor.name) from None
    return made


def read_array(tensor: Any, raw: Buffer | None, kind: str) -> np.ndarray:
    datatype, shape = datatype_of(tensor.datatype), check_shape(tensor.shape[:])
    if raw is None:
        return from_contents(tensor.contents, datatype, shape)
    if tensor.HasField("contents") and tensor.contents.ListFields():
        raise InvalidInput(
            subject="data", expected=f"either contents or raw_{kind}_contents", got="both"
        )
    return from_bytes(raw, datatype, shape)


def from_contents(contents: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """Return an array of `shape`. Raise InvalidInput if the field or the number of elements does not match (G3)."""
    if datatype.contents_field is None:
        raise InvalidInput(
            f"contents cannot represent {datatype.name}", remedy="use raw_input_contents"
        )
    values: Any = []
    for sent, values in contents.ListFields():  # noqa: B007 - at most one
        if sent.name != datatype.contents_field:
            raise InvalidInput(
                subject="data",
                expected=f"{datatype.contents_field} for {datatype.name}",
                got=sent.name,
            )
    check_count(shape, len(values))
    if datatype.is_text:
        return reshape(object_array(values), shape)
    if len(values) <= FEW or not hasattr(values, "__array__"):  # protobuf before 7 has no arrays
        values = values[:]
    array = np.asarray(values, CONTENTS_DTYPES.get(datatype.contents_field, datatype.dtype))
    return reshape(
        array if array.dtype == datatype.dtype else cast_in_range(array, datatype), shape
    )


def write_request(request: InferenceRequest, raw: bool = True) -> bytes:
    """Return the serialized message. Its tensors are raw if `raw` is set or if one is FP16, otherwise typed."""
    message = ModelInferRequest()
    try:
        for output in request.outputs:
            write_parameters(message.outputs.add(name=output.name).parameters, output.parameters)
    except (TypeError, ValueError) as error:
        raise cannot_represent(error) from None
    return b"".join(
        [
            *write_parts(request, request.inputs, INPUTS, RAW_INPUTS, raw),
            message.SerializeToString(),
        ]
    )


def write_response(response: InferenceResponse, raw: bool, without_copies: bool = True) -> bytes:
    """Return the serialized message. Its tensors are raw if `raw` is set or if one is FP16, otherwise typed (G4)."""
    message = b"".join(write_parts(response, response.outputs, OUTPUTS, RAW_OUTPUTS, raw))
    return message if without_copies else ModelInferResponse.FromString(message).SerializeToString()


def write_parts(
    envelope: InferenceRequest | InferenceResponse,
    tensors: Sequence[Tensor],
    number: int,
    raw_number: int,
    raw: bool,
) -> list[Buffer]:
    """Return the parts of the message: tensors in the field `number`, and their data in `raw_number` if `raw` is set.

    Raise InvalidInput for values that protobuf cannot represent: lone surrogates, and integers over 64 bits.
    """
    try:
        parts: list[Buffer] = [message_head(envelope.model_name, envelope.model_version)]
        blobs: list[Buffer] = []
        if envelope.id or envelope.parameters:
            parts.append(
                serialize_parameters(ModelInferRequest(id=envelope.id), envelope.parameters)
            )
        raw = raw or any(datatype_of(tensor.datatype).contents_field is None for tensor in tensors)
        for tensor in tensors:
            head, datatype = (
                tensor_head(tensor.name, tensor.datatype, tensor.data.shape),
                datatype_of(tensor.datatype),
            )
            if tensor.parameters:
                head += serialize_parameters(InferInputTensor(), tensor.parameters)
            try:
                array = tensor.wire_data(is_binary=True)
                if raw:
                    parts += encode_field(number, head)
                    blobs += encode_field(raw_number, to_bytes(array, datatype))
                else:
                    parts += encode_field(
                        number, head, *encode_field(CONTENTS, *to_contents(array, datatype))
                    )
            except InvalidInput as error:
                raise error.about(tensor.kind, tensor.name) from None
        return parts + blobs
    except (TypeError, ValueError) as error:
        raise cannot_represent(error) from None


def cannot_represent(error: Exception) -> InvalidInput:
    """Return the error for a value that protobuf rejects: a lone surrogate, or an integer over 64 bits."""
    return InvalidInput("protobuf cannot represent a value", got=str(error))


def to_contents(array: np.ndarray, datatype: Datatype) -> Sequence[Buffer]:
    """Return the parts of the InferTensorContents message. Raise NoBinaryForm for None."""
    if not array.size:
        return ()
    if datatype.contents_field in PACKED:
        return encode_field(PACKED[datatype.contents_field], to_bytes(array, datatype))
    elements = array.ravel().tolist()
    if datatype.is_text:
        elements = as_bytes(elements)
        if None in elements:
            raise NoBinaryForm
    return (InferTensorContents(**{str(datatype.contents_field): elements}).SerializeToString(),)


@lru_cache(16)
def message_head(name: str | None, version: str | None) -> bytes:
    """Return the serialized name and version of the model, which most messages share."""
    head: bytes = ModelInferRequest(model_name=name, model_version=version).SerializeToString()
    return head


@lru_cache(1024)
def tensor_head(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """Return the serialized tensor without contents and parameters."""
    head: bytes = InferInputTensor(name=name, datatype=datatype, shape=shape).SerializeToString()
    return head


def serialize_parameters(message: Any, values: Mapping[str, Any]) -> bytes:
    """Return the serialized message with the parameters. A parser merges it with the fields before it."""
    write_parameters(message.parameters, values)
    merged: bytes = message.SerializeToString()
    return merged


def read_parameters(parameters: Mapping[str, Any]) -> Parameters:
    """Return the values by name, without parameters that have no value or one of an unknown kind (R17)."""
    values = Parameters()
    if not parameters:  # the common case, for which items() is slower
        return values
    for name, parameter in parameters.items():
        if choice := parameter.WhichOneof("parameter_choice"):
            values[name] = getattr(parameter, choice)
    return values


def write_parameters(parameters: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, bool):
            parameters[name].bool_param = value
        elif isinstance(value, int):
            setattr(parameters[name], "int64_param" if value < 2**63 else "uint64_param", value)
        elif isinstance(value, float):
            parameters[name].double_param = value
        elif isinstance(value, str):
            parameters[name].string_param = value
        elif value is not None:
            raise parameter_error(name, value)
