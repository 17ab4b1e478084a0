"""HTTP bodies and headers of inference requests and responses: JSON with optional binary data after it (B3)."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from app.protocol.binary_tensors import Buffer, from_bytes, to_bytes
from app.protocol.datatypes import DATATYPES
from app.protocol.envelope import JsonObject, Parameters
from app.protocol.errors import InvalidInput
from app.protocol.json_parser import read_json
from app.protocol.json_tensors import from_json, to_json
from app.protocol.messages import Binary, HttpMessage

HEADER_LENGTH = "Inference-Header-Content-Length"
JSON = "application/json"
OCTETS = "application/octet-stream"


def write_http(
    head: JsonObject, member: str, tensors: Iterable[Any], binary: Binary, nonfinite: str
) -> HttpMessage:
    """Return the body and its headers. The JSON object contains `head`, and the tensors in `member`.

    `nonfinite` is the setting JSON_NONFINITE. Raise InvalidInput if a tensor cannot be represented (R12, R14).
    """
    heads, blobs = write_tensors(tensors, binary, nonfinite)
    json = write_json({**head, member: heads})
    if not blobs:
        return json, {"Content-Type": JSON}
    return b"".join([json, *blobs]), {"Content-Type": OCTETS, HEADER_LENGTH: str(len(json))}


def read_http(body: bytes | str, headers: Mapping[str, str]) -> tuple[Any, Buffer]:
    """Return the JSON value of an HTTP body and the binary data after it. Raise InvalidInput if it is malformed."""
    body = body.encode() if isinstance(body, str) else body
    stated = next(
        (value for name, value in headers.items() if name.lower() == HEADER_LENGTH.lower()), None
    )
    json, blobs = split_body(body, read_header_length(stated, len(body)))
    return read_json(json), blobs


def write_tensors(
    tensors: Iterable[Any], binary: Binary, nonfinite: str
) -> tuple[list[JsonObject], list[Buffer]]:
    """Return the JSON objects of the tensors, and the binary data."""
    heads, blobs = [], []
    for tensor in tensors:
        head: JsonObject = {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
        datatype = DATATYPES[tensor.datatype]
        if tensor.parameters:
            head["parameters"] = tensor.parameters
        try:
            if binary is True or (binary and tensor.name in binary):
                blobs.append(to_bytes(tensor.wire_data(is_binary=True), datatype))
                head["parameters"] = {**tensor.parameters, "binary_data_size": len(blobs[-1])}
            else:
                head["data"] = to_json(tensor.wire_data(is_binary=False), datatype, nonfinite)
        except InvalidInput as error:
            raise error.about(tensor.kind, tensor.name) from None
        heads.append(head)
    return heads, blobs


def read_tensors(heads: Iterable[JsonObject], blobs: Buffer, make: Any) -> list[Any]:
    """Create tensors of the class `make` from validated JSON objects, in which `datatype` is a Datatype.

    `blobs` is the data after the JSON. If a tensor is invalid, raise InvalidInput with its name (B2, B5, R9 to R12).
    """
    tensors, position = [], 0
    for head in heads:
        parameters = Parameters(head["parameters"] or ())
        size = parameters.pop("binary_data_size", None)  # applies only to this body
        end = position + (size or 0)
        try:
            if (head["data"] is None) == (size is None):
                got = "both" if size is not None else "neither"
                raise InvalidInput(
                    subject="data", expected="either data or binary_data_size", got=got
                )
            if size is None:
                array = from_json(head["data"], head["datatype"], head["shape"])
            elif end <= len(blobs):
                array = from_bytes(blobs[position:end], head["datatype"], head["shape"])
            else:
                got = f"{len(blobs) - position} of {size} bytes"
                raise InvalidInput(
                    "body too short", expected="the size in binary_data_size", got=got
                )
        except InvalidInput as error:
            raise error.about(make.kind, head["name"]) from None
        position = end
        tensors.append(make.of(head["name"], head["datatype"].name, array, parameters))
    if position != len(blobs):
        expected, got = (
            "no bytes after the data of the last tensor",
            f"{len(blobs) - position} bytes",
        )
        raise InvalidInput("body too long", expected=expected, got=got)
    return tensors


def split_body(body: bytes, header_length: int | None) -> tuple[bytes, Buffer]:
    """Return the JSON of a body and the data after it. Without `header_length`, the whole body is JSON (B4)."""
    if header_length is None:
        return body, b""
    return body[:header_length], memoryview(body)[header_length:]


def write_json(value: Any) -> bytes:
    """Serialize `value` as JSON. Raise InvalidInput if it contains text that is not valid Unicode."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InvalidInput("JSON cannot represent a value", got=str(error)) from None


def read_header_length(text: str | None, body_length: int) -> int | None:
    """Parse the value of Inference-Header-Content-Length (B4). Raise InvalidInput if it is invalid."""
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number or int(text) > body_length:
        expected = (
            f"the length of the JSON in bytes, at most {body_length} (the length of the body)"
        )
        raise InvalidInput(subject=HEADER_LENGTH, expected=expected, got=text)
    return int(text)
