"""Conversion of requests and responses to and from JSON and HTTP, as that of gRPC is in
`grpc_service/converters.py`.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from app.protocol.binary_tensors import Buffer
from app.protocol.envelope import JsonObject, Parameters
from app.protocol.http_body import read_http, read_tensors, write_http
from app.protocol.messages import (
    Binary,
    HttpMessage,
    InferenceRequest,
    InferenceResponse,
    Message,
    RequestOutput,
)
from app.protocol.metadata import without_empty
from app.protocol.object_reader import read_request, read_response
from app.protocol.tensors import RequestInput, ResponseOutput

AnyMessage = TypeVar("AnyMessage", bound=Message)


def write_request(
    request: InferenceRequest, binary: Binary = True, nonfinite: str = "error"
) -> HttpMessage:
    """Return the body of a request and its headers. See InferenceRequest.to_http()."""
    parameters = request.parameters
    if binary:
        parameters = {"binary_data_output": True, **parameters}
    outputs = [
        without_empty({"name": output.name, "parameters": output.parameters})
        for output in request.outputs
    ]
    head = without_empty({"id": request.id, "parameters": parameters, "outputs": outputs})
    return write_http(head, "inputs", request.inputs, binary, nonfinite)


def write_response(
    response: InferenceResponse, binary: Binary = True, nonfinite: str = "error"
) -> HttpMessage:
    """Return the body of a response and its headers. See InferenceResponse.to_http()."""
    head = {"model_name": response.model_name, "model_version": response.model_version}
    head |= without_empty({"id": response.id, "parameters": response.parameters})
    return write_http(head, "outputs", response.outputs, binary, nonfinite)


def read_message(
    message_class: type[AnyMessage], body: bytes | str, headers: Mapping[str, str]
) -> AnyMessage:
    """Return the request or response in an HTTP body. Raise the exceptions of parse_message()."""
    payload, blobs = read_http(body, headers)
    return parse_message(message_class, payload, blobs)


def parse_message(message_class: type[AnyMessage], payload: Any, blobs: Buffer = b"") -> AnyMessage:
    """Return the request or response in a JSON object and the binary data after it.

    Raise InvalidInput if it is malformed, and InferenceError if it is the response of a failed
    request.
    """
    if issubclass(message_class, InferenceRequest):
        valid = read_request(payload)
        return cast(AnyMessage, make_request(valid, blobs, message_class))
    if issubclass(message_class, InferenceResponse):
        valid = read_response(payload)
        return cast(AnyMessage, make_response(valid, blobs, message_class))
    raise TypeError(message_class)


def make_request(
    valid: JsonObject, blobs: Buffer, request_class: type[InferenceRequest] = InferenceRequest
) -> InferenceRequest:
    """Create a request from validated members.

    Raise InvalidInput if the data of an input is invalid.
    """
    inputs = read_tensors(valid["inputs"], blobs, RequestInput)
    outputs = [
        RequestOutput(output["name"], Parameters(output["parameters"] or ()))
        for output in valid["outputs"] or ()
    ]
    parameters = Parameters(valid["parameters"] or ())
    return request_class(inputs, None, None, valid["id"], parameters, outputs)


def make_response(
    valid: JsonObject, blobs: Buffer, response_class: type[InferenceResponse] = InferenceResponse
) -> InferenceResponse:
    """Create a response from validated members.

    Raise InvalidInput if the data of an output is invalid.
    """
    outputs = read_tensors(valid["outputs"], blobs, ResponseOutput)
    parameters = Parameters(valid["parameters"] or ())
    return response_class(
        outputs, valid["model_name"], valid["model_version"], valid["id"], parameters
    )
