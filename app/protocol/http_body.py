"""HTTP bodies of inference requests and responses: JSON with optional binary data after it (B3).

    {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size":
    4}}, {"name": "y", "shape": [1], "datatype": "FP32", "data": [1.5]}]}⟨4 bytes of x⟩

The header Inference-Header-Content-Length contains the length of the JSON. The data of the binary
tensors follows in their order, without gaps. In this package, `blobs` is all that follows the JSON.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import orjson

from app.protocol.binary_tensors import Buffer, from_bytes, to_bytes
from app.protocol.datatypes import DATATYPES
from app.protocol.envelope import JsonObject, Parameters
from app.protocol.errors import InvalidInput
from app.protocol.json_parser import read_json
from app.protocol.json_rows import flatten_rows
from app.protocol.json_tensors import from_json, to_json
from app.protocol.messages import Binary, HttpMessage
from app.protocol.tensors import Tensor

HEADER_LENGTH = "Inference-Header-Content-Length"
JSON = "application/json"
OCTETS = "application/octet-stream"
# A longer number is more than any body has, and int() takes quadratic time.
_MAX_HEADER_LENGTH_DIGITS = 19

AnyTensor = TypeVar("AnyTensor", bound=Tensor)


def write_http(
    head: JsonObject, member: str, tensors: Iterable[Tensor], binary: Binary, nonfinite: str
) -> HttpMessage:
    """Return the body and its headers. The JSON object contains `head`, and the tensors in
    `member`.

    `nonfinite` is the setting JSON_NONFINITE. Raise InvalidInput if a tensor cannot be represented
    (R12, R14).
    """
    heads, blobs = write_tensors(tensors, binary, nonfinite)
    json = write_json({**head, member: heads})
    if not blobs:
        return json, {"Content-Type": JSON}
    headers = {"Content-Type": OCTETS, HEADER_LENGTH: str(len(json))}
    return b"".join([json, *blobs]), headers


def read_http(body: bytes | str, headers: Mapping[str, str]) -> tuple[Any, Buffer]:
    """Return the JSON value of an HTTP body and the binary data after it.

    Raise InvalidInput if it is malformed.
    """
    if isinstance(body, str):
        body = body.encode()
    header_length = None
    for name, value in headers.items():  # also of a dict, whose names are case-sensitive
        if name.lower() == HEADER_LENGTH.lower():
            header_length = read_header_length(value, len(body))
            break
    json, blobs = split_body(body, header_length)
    return read_json(flatten_rows(json)), blobs


def write_tensors(
    tensors: Iterable[Tensor], binary: Binary, nonfinite: str
) -> tuple[list[JsonObject], list[Buffer]]:
    """Return the JSON objects of the tensors, and the data of the binary ones."""
    heads: list[JsonObject] = []
    blobs: list[Buffer] = []
    for tensor in tensors:
        head: JsonObject = {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
        if tensor.parameters:
            head["parameters"] = tensor.parameters
        datatype = DATATYPES[tensor.datatype]
        is_binary = binary is True or bool(binary and tensor.name in binary)
        try:
            if is_binary:
                blob = to_bytes(tensor.wire_data(is_binary=True), datatype)
                blobs.append(blob)
                head["parameters"] = {**tensor.parameters, "binary_data_size": len(blob)}
            else:
                head["data"] = to_json(tensor.wire_data(is_binary=False), datatype, nonfinite)
        except InvalidInput as error:
            raise error.about(tensor.kind, tensor.name) from None
        heads.append(head)
    return heads, blobs


def read_tensors(
    heads: Iterable[JsonObject], blobs: Buffer, tensor_class: type[AnyTensor]
) -> list[AnyTensor]:
    """Create tensors of a class from validated JSON objects, in which `datatype` is a Datatype.

    `blobs` is the data after the JSON. If a tensor is invalid, raise InvalidInput with its name
    (B2, B5, R9 to R12).
    """
    tensors: list[AnyTensor] = []
    position = 0
    for head in heads:
        parameters = Parameters(head["parameters"] or ())
        # The size applies only to this body, so it is not a parameter of the tensor.
        size = parameters.pop("binary_data_size", None)
        try:
            array = _read_array(head, size, blobs, position)
        except InvalidInput as error:
            raise error.about(tensor_class.kind, head["name"]) from None
        if size is not None:
            position += size
        tensors.append(tensor_class.of(head["name"], head["datatype"].name, array, parameters))

    if position != len(blobs):
        raise InvalidInput(
            "body too long",
            expected="no bytes after the data of the last tensor",
            got=f"{len(blobs) - position} bytes",
        )
    return tensors


def _read_array(head: JsonObject, size: int | None, blobs: Buffer, position: int) -> np.ndarray:
    """Return the data of a tensor: from its JSON object, or `size` bytes from `position` of
    `blobs`.
    """
    has_data = head["data"] is not None
    has_size = size is not None
    if has_data == has_size:
        got = "both" if has_size else "neither"
        raise InvalidInput(subject="data", expected="either data or binary_data_size", got=got)
    if size is None:
        return from_json(head["data"], head["datatype"], head["shape"])

    end = position + size
    if end > len(blobs):
        raise InvalidInput(
            "body too short",
            expected="the size in binary_data_size",
            got=f"{len(blobs) - position} of {size} bytes",
        )
    return from_bytes(blobs[position:end], head["datatype"], head["shape"])


def split_body(body: bytes, header_length: int | None) -> tuple[bytes, Buffer]:
    """Return the JSON of a body and the data after it.

    Without `header_length`, the whole body is JSON (B4).
    """
    if header_length is None:
        return body, b""
    return body[:header_length], memoryview(body)[header_length:]


def write_json(value: Any) -> bytes:
    """Serialize `value` as JSON.

    Raise InvalidInput if it contains text that is not valid Unicode.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InvalidInput("JSON cannot represent a value", got=str(error)) from None


def read_header_length(text: str | None, body_length: int) -> int | None:
    """Parse the value of Inference-Header-Content-Length (B4).

    Raise InvalidInput if it is invalid.
    """
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_HEADER_LENGTH_DIGITS
    if not is_number or int(text) > body_length:
        limit = f"at most {body_length} (the length of the body)"
        raise InvalidInput(
            subject=HEADER_LENGTH, expected=f"the length of the JSON in bytes, {limit}", got=text
        )
    return int(text)
