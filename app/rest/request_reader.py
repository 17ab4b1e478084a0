"""Parsing of REST request bodies (R19).

The body is read with one call of wsgi.input.read(), without Werkzeug's stream. That stream reads 8 KiB at a time,
rejects a chunked body of exactly the maximum size, and accepts a truncated body.
"""

import math
from collections.abc import Container
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np

from app.protocol.binary_tensors import from_bytes
from app.protocol.datatypes import check_count, datatype_of, format_shape, object_array, reshape
from app.protocol.errors import InvalidInput, join_names
from app.protocol.http_body import HEADER_LENGTH, split_body
from app.protocol.http_message import make_request
from app.protocol.json_parser import read_json, read_numbers
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput
from app.rest.content_encoding import PIECE, decompress, too_large
from app.rest.schemas import Validate, validate_request

# Maximum number of bytes to discard after an error response. If the body has more, the connection is closed.
MAX_DISCARDED = 2**30
DISCARD_WAIT_SECONDS = 2  # maximum wait for a client that sends nothing after an error response


def read_body(environ: dict[str, Any], limit: int) -> bytes:
    """Read and decompress the body.

    Raise PayloadTooLarge if it has more than `limit` bytes, compressed or not, and InvalidInput if it is truncated.
    """
    text = environ.get("CONTENT_LENGTH") or ""
    is_chunked = not text and bool(environ.get("wsgi.input_terminated"))
    length = limit + 1 if is_chunked else int(text or 0)
    if length > limit and not is_chunked:
        raise too_large(limit)
    try:
        body = environ["wsgi.input"].read(length)
    except (
        Exception
    ) as error:  # each server has its own exceptions for malformed chunks and lost clients
        raise InvalidInput(f"Cannot read the body: {type(error).__name__}.") from error
    if len(body) > limit:
        raise too_large(limit)
    if len(body) < length and not is_chunked:
        raise InvalidInput(
            "body too short", expected="the size in Content-Length", got=f"{len(body)} of {length}"
        )
    environ["wsgi.input"] = BytesIO()  # the old stream would keep the body in memory
    return decompress(body, environ.get("HTTP_CONTENT_ENCODING", ""), limit)


def discard_body(environ: dict[str, Any]) -> None:
    """Discard the rest of the body. Otherwise, a client that is still sending could not read the error response."""
    # Only gunicorn's own workers have a socket with this method. Their exceptions for disconnected clients differ.
    with suppress(Exception):
        environ["gunicorn.socket"].settimeout(DISCARD_WAIT_SECONDS)
        for _ in range(MAX_DISCARDED // PIECE):
            if not environ["wsgi.input"].read(PIECE):
                return


def read_request(
    body: bytes,
    header_length: int | None = None,
    validate: Validate = validate_request,
    simdjson: bool = True,
) -> InferenceRequest:
    """Parse `body`: JSON of `header_length` bytes followed by binary data (B3), or only JSON.

    `validate` validates the envelope. `simdjson` enables that parser. Raise InvalidInput if the body is invalid.
    """
    json, blobs = split_body(body, header_length)
    if simdjson and (payload := read_numbers(json)) is not None:
        with suppress(InvalidInput):  # read_json() reports the exact error
            return make_request(validate(payload), blobs)
    return make_request(validate(read_json(json)), blobs)


def read_raw(body: bytes, metadata: ModelMetadata, optional: Container[str]) -> InferenceRequest:
    """Return a request with `body` as the data of the only required input, and with binary outputs (B8).

    Raise InvalidInput if the model has another number of required inputs, or if the body does not match the input.
    """
    required = [each for each in metadata.inputs if each.name not in optional]
    if len(required) != 1:
        got = join_names(each.name for each in required)
        raise InvalidInput(
            f"invalid {HEADER_LENGTH} 0", expected="a model with one required input", got=got
        )
    try:
        sent = RequestInput.of(
            required[0].name, required[0].datatype, read_raw_array(body, required[0]), {}
        )
    except InvalidInput as error:
        raise error.about("input", required[0].name, is_declared=True) from None
    return InferenceRequest([sent], parameters={"binary_data_output": True})


def read_raw_array(body: bytes, tensor: MetadataTensor) -> np.ndarray:
    """Return the data of `tensor`. BYTES has one element. Otherwise, the body determines the variable dimension."""
    datatype, declared = datatype_of(tensor.datatype), tensor.shape
    if not body:
        raise InvalidInput("empty body", expected="the data of the input")
    if datatype.size is None:
        check_count(shape := [abs(each) for each in declared], 1)
        return reshape(object_array([body]), shape)
    if declared.count(-1) > 1:
        expected = f"at most one variable dimension for {HEADER_LENGTH} 0"
        raise InvalidInput(subject="shape", expected=expected, got=format_shape(declared))
    fixed = datatype.size * math.prod(each for each in declared if each != -1)
    variable = len(body) // fixed if fixed else 0
    return from_bytes(body, datatype, [variable if each == -1 else each for each in declared])


def read_index_request(body: bytes) -> bool:
    """Return True if the client requests only models that are ready (T2). Raise InvalidInput if the body is invalid."""
    asked = read_json(body) if body else {}
    ready = asked.get("ready") if isinstance(asked, dict) else asked
    if not isinstance(asked, dict) or not isinstance(ready, bool | None):
        raise InvalidInput(expected='an object in which "ready" is true or false', got=asked)
    return bool(ready)
