"""Reader of REST requests: from the body in a WSGI environ to an InferenceRequest.

The body is read with wsgi.input.read(), without Werkzeug's stream. That stream reads 8 KiB at a
time, rejects a chunked body of exactly the maximum size, and accepts a truncated body.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np

from app.protocol.binary_tensors import Buffer, from_bytes
from app.protocol.datatypes import check_count, datatype_of, format_shape, object_array, reshape
from app.protocol.decompression import decompress, too_large
from app.protocol.errors import InvalidInput, join_names
from app.protocol.http_body import HEADER_LENGTH, split_body
from app.protocol.http_message import make_request
from app.protocol.json_parser import read_json, read_numbers
from app.protocol.json_rows import flatten_rows
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput
from app.rest.schemas import Validate, validate_request

# Limits for the rest of a body after an error response. If the client sends more than MAX_DISCARDED
# bytes, or nothing for DISCARD_WAIT_SECONDS, the connection is closed.
MAX_DISCARDED = 2**30
DISCARD_WAIT_SECONDS = 2
DISCARDED_PIECE_SIZE = 2**16


def read_body(
    environ: dict[str, Any], limit: int, count_bytes: Callable[[int], None] = lambda size: None
) -> bytes:
    """Read and decompress the body. Call `count_bytes` before decompression takes more memory.

    Raise PayloadTooLarge if it has more than `limit` bytes, compressed or not, and InvalidInput if
    it is truncated.
    """
    body = _read_compressed_body(environ, limit)
    environ["wsgi.input"] = BytesIO()  # the old stream would keep the body in memory
    return decompress(body, environ.get("HTTP_CONTENT_ENCODING", ""), limit, count_bytes)


def _read_compressed_body(environ: dict[str, Any], limit: int) -> bytes:
    content_length = environ.get("CONTENT_LENGTH")
    if content_length:
        length = int(content_length)
        if length > limit:
            raise too_large(limit)
        body = _read_input(environ, length)
        if len(body) < length:
            got = f"{len(body)} of {length}"
            raise InvalidInput("body too short", expected="the size in Content-Length", got=got)
        return body

    is_chunked = environ.get("wsgi.input_terminated")
    if not is_chunked:
        return b""
    body = _read_input(environ, limit + 1)
    if len(body) > limit:
        raise too_large(limit)
    return body


def _read_input(environ: dict[str, Any], length: int) -> bytes:
    """Read `length` bytes, or fewer if the body ends. Raise InvalidInput if this fails."""
    try:
        body: bytes = environ["wsgi.input"].read(length)
    # Each server has its own exceptions for malformed chunks and disconnected clients.
    except Exception as error:
        raise InvalidInput(f"Cannot read the body: {type(error).__name__}.") from error
    return body


def discard_body(environ: dict[str, Any]) -> None:
    """Discard the rest of the body.

    Otherwise, a client that is still sending could not read the error response.
    """
    # Only gunicorn's own workers have a socket with this method. Their exceptions for disconnected
    # clients differ.
    with suppress(Exception):
        environ["gunicorn.socket"].settimeout(DISCARD_WAIT_SECONDS)
        for _ in range(MAX_DISCARDED // DISCARDED_PIECE_SIZE):
            if not environ["wsgi.input"].read(DISCARDED_PIECE_SIZE):
                return


def read_request(
    body: bytes,
    header_length: int | None = None,
    validate: Validate = validate_request,
    simdjson: bool = True,
) -> InferenceRequest:
    """Parse `body`: JSON of `header_length` bytes followed by binary data (B3), or only JSON.

    `validate` validates the JSON value. `simdjson` enables the parser for large lists of numbers.
    Raise InvalidInput if the body is invalid.
    """
    json, blobs = split_body(body, header_length)
    json = flatten_rows(json)
    if simdjson:
        request = _read_numeric_request(json, blobs, validate)
        if request is not None:
            return request
    return make_request(validate(read_json(json)), blobs)


def _read_numeric_request(
    json: bytes, blobs: Buffer, validate: Validate
) -> InferenceRequest | None:
    """Return a request with large lists of numbers, or None for another or an invalid request.

    In a function of its own, so that the memory of a rejected request is free before read_json()
    parses it again.
    """
    payload = read_numbers(json)
    if payload is None:
        return None
    try:
        return make_request(validate(payload), blobs)
    except InvalidInput:  # the elements from read_json() give the exact error
        return None


def read_raw(body: bytes, metadata: ModelMetadata) -> InferenceRequest:
    """Return a request with `body` as data of the only required input, and binary outputs (B8).

    Raise InvalidInput if the model has another number of required inputs, or if the body does not
    match the input.
    """
    required = metadata.required_inputs
    if len(required) != 1:
        got = join_names(tensor.name for tensor in required)
        raise InvalidInput(
            f"invalid {HEADER_LENGTH} 0", expected="a model with one required input", got=got
        )

    tensor = required[0]
    try:
        array = _read_raw_array(body, tensor)
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None
    request_input = RequestInput.of(tensor.name, tensor.datatype, array, {})
    return InferenceRequest([request_input], parameters={"binary_data_output": True})


def _read_raw_array(body: bytes, tensor: MetadataTensor) -> np.ndarray:
    """Return the data of an input as declared in `tensor`.

    For BYTES, the body is the only element. For other datatypes, its length determines the size of
    the variable dimension.
    """
    datatype = datatype_of(tensor.datatype)
    if not body:
        raise InvalidInput("empty body", expected="the data of the input")

    if datatype.size is None:
        shape = _replace_variable(tensor.shape, 1)
        check_count(shape, 1)
        return reshape(object_array([body]), shape)

    if tensor.shape.count(-1) > 1:
        expected = f"at most one variable dimension for {HEADER_LENGTH} 0"
        raise InvalidInput(subject="shape", expected=expected, got=format_shape(tensor.shape))
    bytes_per_row = datatype.size * math.prod(_replace_variable(tensor.shape, 1))
    rows = 0
    if bytes_per_row > 0:
        rows = len(body) // bytes_per_row
    return from_bytes(body, datatype, _replace_variable(tensor.shape, rows))


def _replace_variable(shape: Sequence[int], size: int) -> list[int]:
    """Return the shape with `size` instead of its variable dimensions."""
    return [size if dimension == -1 else dimension for dimension in shape]


def read_index_request(body: bytes) -> bool:
    """Return True if the client requests only models that are ready (T2).

    Raise InvalidInput if the body is invalid.
    """
    request: Any = {}
    if body:
        request = read_json(body)
    is_valid = isinstance(request, dict) and isinstance(request.get("ready"), bool | None)
    if not is_valid:
        raise InvalidInput(expected='an object in which "ready" is true or false', got=request)
    return bool(request.get("ready"))
