"""Conversion of requests and responses to and from protobuf messages.

The data of a message has one of two forms (G2 to G4). In the typed form, each tensor has its own
elements, in the field of `contents` for its datatype. In the raw form, the message has the bytes of
all tensors, in the layout of `app/protocol/binary_tensors.py`:

    typed    inputs[0].contents.fp32_contents = [1.5, 2]
             inputs[1].contents.int_contents = [3]

    raw      raw_input_contents[0] = 00 00 c0 3f 00 00 00 40
             raw_input_contents[1] = 03 00 00 00

Here, `raw_contents` are the values of `raw_input_contents` or `raw_output_contents`: one buffer for
each tensor, or none in the typed form. FP16 and BF16 have only the raw form.

Reading: protobuf parses the message. The raw contents of a large one are not copied. See `wire.py`.

Writing: a message is joined from serialized parts, most of which are cached or are the bytes of
arrays. A parser merges them, because the order of fields has no meaning:

    model_name, model_version | id, parameters | inputs[0] | inputs[1] | raw_input_contents
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from app.protocol.binary_tensors import Buffer, from_bytes, to_bytes
from app.protocol.datatypes import (
    DATATYPES,
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
from grpc_service.wire import check_fields, encode_field, extract_large_field

# Takes the number of bytes of raw contents in a message, and that of the rest.
CountBytes = Callable[[int, int], None]

AnyTensor = TypeVar("AnyTensor", bound=Tensor)


class _TensorFields(NamedTuple):
    """The numbers of the fields for the tensors of a message, and for their raw contents."""

    tensors: int
    raw_contents: int


# Only these fields differ between requests and responses. The numbers of the others are equal, also
# in their tensors, so the classes for requests can serialize parts of responses.
_REQUEST_FIELDS = _TensorFields(
    tensors=field_number(ModelInferRequest, "inputs"),
    raw_contents=field_number(ModelInferRequest, "raw_input_contents"),
)
_RESPONSE_FIELDS = _TensorFields(
    tensors=field_number(ModelInferResponse, "outputs"),
    raw_contents=field_number(ModelInferResponse, "raw_output_contents"),
)
_TensorMessage = ModelInferRequest.InferInputTensor
_CONTENTS_NUMBER = field_number(_TensorMessage, "contents")

# FP16 and BF16, for which InferTensorContents has no field.
_RAW_ONLY_DATATYPES = {
    name for name, datatype in DATATYPES.items() if datatype.contents_field is None
}
# Fields of InferTensorContents whose encoding is equal to the bytes of the array, by name.
_PACKED_NUMBERS = {
    name: field_number(InferTensorContents, name)
    for name in ("bool_contents", "fp32_contents", "fp64_contents")
}
# Fields of InferTensorContents that several datatypes share. Their elements have 32 bits.
_SHARED_DTYPES = {"int_contents": np.dtype("<i4"), "uint_contents": np.dtype("<u4")}

_MAX_TEXTS_PER_PART = 2**14
# For at most this number of elements, NumPy converts a list faster than protobuf's array.
_MAX_LIST_LENGTH = 32


# Reading. A slice copies a repeated field to a list, which is faster than iterating over the field.


def parse_request(
    body: bytes, without_copies: bool = True, count_bytes: CountBytes = lambda raw, other: None
) -> tuple[Any, Sequence[Buffer]]:
    """Return the ModelInferRequest, and its raw contents, which are empty in the typed form.

    Raw contents of a large body are views of it, unless `without_copies` is False. Before protobuf
    parses the rest, pass the sizes of both to `count_bytes`. Raise DecodeError if the body is
    malformed, and InvalidInput if it has too many fields or a group.
    """
    raw_contents: Sequence[Buffer] = ()
    if not without_copies:
        check_fields(body)
    else:
        body, raw_contents = extract_large_field(body, _REQUEST_FIELDS.raw_contents)
    count_bytes(sum(map(len, raw_contents)), len(body))
    message = ModelInferRequest.FromString(body)
    if not raw_contents:
        raw_contents = message.raw_input_contents[:]
    return message, raw_contents


def read_request(message: Any, raw_contents: Sequence[Buffer]) -> InferenceRequest:
    """Return the request. Raise InvalidInput if it is invalid for any model (G2, G3)."""
    inputs = _read_tensors(message.inputs, raw_contents, RequestInput)
    outputs = []
    if message.outputs:
        check_number_of_tensors("outputs", len(message.outputs))
        for output in message.outputs[:]:
            outputs.append(RequestOutput(output.name, read_parameters(output.parameters)))
    return InferenceRequest(
        inputs,
        message.model_name,
        message.model_version or None,
        message.id or None,
        read_parameters(message.parameters),
        outputs,
    )


def read_response(body: bytes) -> InferenceResponse:
    """Return the response. Raise InvalidInput or DecodeError if it is invalid."""
    body, raw_contents = extract_large_field(body, _RESPONSE_FIELDS.raw_contents)
    message = ModelInferResponse.FromString(body)
    if not raw_contents:
        raw_contents = message.raw_output_contents[:]
    return InferenceResponse(
        _read_tensors(message.outputs, raw_contents, ResponseOutput),
        message.model_name,
        message.model_version or None,
        message.id or None,
        read_parameters(message.parameters),
    )


def _read_tensors(
    messages: Any, raw_contents: Sequence[Buffer], tensor_class: type[AnyTensor]
) -> list[AnyTensor]:
    """Return the tensors in a repeated field of a message."""
    kind = tensor_class.kind  # "input" or "output"
    number_of_tensors = len(messages)
    check_number_of_tensors(f"{kind}s", number_of_tensors)

    contents: Sequence[Buffer | None] = raw_contents
    if not raw_contents:
        contents = [None] * number_of_tensors
    elif len(raw_contents) != number_of_tensors:
        raise InvalidInput(
            subject=f"raw_{kind}_contents",
            expected=f"one entry per {kind}",
            got=f"{len(raw_contents)} ({kind}s: {number_of_tensors})",
        )

    tensors = []
    # Their lengths are equal. zip() takes three times as long with `strict=True`.
    for message, raw_content in zip(messages[:], contents):  # noqa: B905
        try:
            array = _read_array(message, raw_content, kind)
        except InvalidInput as error:
            raise error.about(kind, message.name) from None
        parameters = read_parameters(message.parameters)
        tensors.append(tensor_class.of(message.name, message.datatype, array, parameters))
    return tensors


def _read_array(message: Any, raw_content: Buffer | None, kind: str) -> np.ndarray:
    """Return the data of a tensor, whose `raw_content` is None in the typed form."""
    datatype = datatype_of(message.datatype)
    shape = check_shape(message.shape[:])
    if raw_content is None:
        return _from_contents(message.contents, datatype, shape)
    # An empty `contents` counts as not set (G2).
    if message.HasField("contents") and message.contents.ListFields():
        raise InvalidInput(
            subject="data", expected=f"either contents or raw_{kind}_contents", got="both"
        )
    return from_bytes(raw_content, datatype, shape)


def _from_contents(contents: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """Return the elements in an InferTensorContents message, in `shape`.

    Raise InvalidInput if the field or the number of elements does not match, or if an element is
    out of range (G3).
    """
    field_name = datatype.contents_field
    if field_name is None:
        raise InvalidInput(
            f"contents cannot represent {datatype.name}", remedy="use raw_input_contents"
        )
    for field, _ in contents.ListFields():  # the fields that are not empty
        if field.name != field_name:
            raise InvalidInput(
                subject="data", expected=f"{field_name} for {datatype.name}", got=field.name
            )
    elements = getattr(contents, field_name)
    check_count(shape, len(elements))
    if datatype.is_text:
        return reshape(object_array(elements), shape)

    # NumPy converts a short list faster than protobuf's array. protobuf has arrays since version 7.
    is_short = len(elements) <= _MAX_LIST_LENGTH
    has_array = hasattr(elements, "__array__")
    if is_short or not has_array:
        elements = elements[:]  # a list
    # Small integers share a field of 32 bits, so they must also be in the range of their datatype.
    array = np.asarray(elements, _SHARED_DTYPES.get(field_name, datatype.dtype))
    if array.dtype != datatype.dtype:
        array = cast_in_range(array, datatype)
    return reshape(array, shape)


def read_parameters(parameters: Mapping[str, Any]) -> Parameters:
    """Return the values by name, without parameters that have no value or one of an unknown kind.

    null in JSON is also ignored (R17).
    """
    values = Parameters()
    if not parameters:  # the common case, for which items() is slower
        return values
    for name, parameter in parameters.items():
        field_name = parameter.WhichOneof("parameter_choice")
        if field_name:
            values[name] = getattr(parameter, field_name)
    return values


# Writing


def write_request(request: InferenceRequest, raw: bool = True) -> bytes:
    """Return the serialized message in the raw form if `raw` is True, or in the typed form.

    A tensor of FP16 or BF16 makes the whole message raw. Raise InvalidInput if protobuf cannot
    represent a value.
    """
    requested_outputs = ModelInferRequest()  # a part of the message, with only this field
    try:
        for output in request.outputs:
            message = requested_outputs.outputs.add(name=output.name)
            write_parameters(message.parameters, output.parameters)
        parts = _message_parts(request, request.inputs, _REQUEST_FIELDS, raw=raw)
    except (TypeError, ValueError) as error:
        raise _unrepresentable(error) from None
    parts.append(requested_outputs.SerializeToString())
    return b"".join(parts)


def write_response(response: InferenceResponse, raw: bool, without_copies: bool = True) -> bytes:
    """Return the serialized message in the raw form if `raw` is True, or in the typed form (G4).

    A tensor of FP16 or BF16 makes the whole message raw. If `without_copies` is False, protobuf
    serializes the whole message. Raise InvalidInput if protobuf cannot represent a value.
    """
    try:
        parts = _message_parts(response, response.outputs, _RESPONSE_FIELDS, raw=raw)
    except (TypeError, ValueError) as error:
        raise _unrepresentable(error) from None
    body = b"".join(parts)
    if not without_copies:
        body = ModelInferResponse.FromString(body).SerializeToString()
    return body


def _unrepresentable(error: Exception) -> InvalidInput:
    """Return the error for a value that protobuf rejects.

    For example, protobuf raises UnicodeEncodeError, a ValueError, for a text with a lone surrogate,
    and ValueError for an integer over 64 bits.
    """
    return InvalidInput("protobuf cannot represent a value", got=str(error))


def _message_parts(
    message: InferenceRequest | InferenceResponse,
    tensors: Sequence[Tensor],
    fields: _TensorFields,
    raw: bool,
) -> list[Buffer]:
    """Return the serialized message in parts, with all raw contents after the tensors.

    Raise TypeError or ValueError if protobuf rejects a value.
    """
    parts: list[Buffer] = [_message_head(message.model_name, message.model_version)]
    if message.id or message.parameters:
        parts.append(_serialize(ModelInferRequest(id=message.id), message.parameters))

    is_raw = raw or any(tensor.datatype in _RAW_ONLY_DATATYPES for tensor in tensors)
    raw_contents: list[Buffer] = []
    for tensor in tensors:
        datatype = datatype_of(tensor.datatype)
        head = _tensor_head(tensor.name, tensor.datatype, tensor.data.shape)
        if tensor.parameters:
            head += _serialize(_TensorMessage(), tensor.parameters)
        try:
            array = tensor.wire_data(is_binary=True)
            if is_raw:
                parts += encode_field(fields.tensors, head)
                raw_contents += encode_field(fields.raw_contents, to_bytes(array, datatype))
            else:
                contents = encode_field(_CONTENTS_NUMBER, *_to_contents(array, datatype))
                parts += encode_field(fields.tensors, head, *contents)
        except InvalidInput as error:
            raise error.about(tensor.kind, tensor.name) from None
    return parts + raw_contents


def _to_contents(array: np.ndarray, datatype: Datatype) -> Sequence[Buffer]:
    """Return a serialized InferTensorContents message in parts. Raise NoBinaryForm for None."""
    field_name = str(datatype.contents_field)
    if not array.size:
        return ()
    if field_name in _PACKED_NUMBERS:
        return encode_field(_PACKED_NUMBERS[field_name], to_bytes(array, datatype))

    elements = array.ravel().tolist()
    if datatype.is_text:
        elements = as_bytes(elements)
        if None in elements:
            raise NoBinaryForm
        # A parser merges the parts. protobuf needs less memory for the texts of one part.
        parts = []
        for start in range(0, len(elements), _MAX_TEXTS_PER_PART):
            texts = elements[start : start + _MAX_TEXTS_PER_PART]
            parts.append(InferTensorContents(bytes_contents=texts).SerializeToString())
        return parts
    return (InferTensorContents(**{field_name: elements}).SerializeToString(),)


@lru_cache(16)
def _message_head(name: str | None, version: str | None) -> bytes:
    """Return the serialized name and version of the model, which most messages share."""
    head: bytes = ModelInferRequest(model_name=name, model_version=version).SerializeToString()
    return head


@lru_cache(1024)
def _tensor_head(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """Return a serialized tensor without contents and parameters."""
    head: bytes = _TensorMessage(name=name, datatype=datatype, shape=shape).SerializeToString()
    return head


def _serialize(message: Any, parameters: Mapping[str, Any]) -> bytes:
    """Add the parameters to a message, and return it in serialized form."""
    write_parameters(message.parameters, parameters)
    body: bytes = message.SerializeToString()
    return body


def write_parameters(parameters: Any, values: Mapping[str, Any]) -> None:
    """Add `values` to a map of InferParameter messages, without those that are None (R17).

    Raise InvalidInput if the type of a value is invalid, and TypeError or ValueError if protobuf
    cannot represent it.
    """
    for name, value in values.items():
        if isinstance(value, bool):  # before int, its base class
            parameters[name].bool_param = value
        elif isinstance(value, int):
            if value < 2**63:
                parameters[name].int64_param = value
            else:
                parameters[name].uint64_param = value
        elif isinstance(value, float):
            parameters[name].double_param = value
        elif isinstance(value, str):
            parameters[name].string_param = value
        elif value is not None:
            raise parameter_error(name, value)
