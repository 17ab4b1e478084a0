"""Requests with binary tensors, and their responses."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from oip_conformance.client import Reply
from oip_conformance.inputs import json_input
from oip_conformance.model import input_of, output_of
from oip_conformance.outcomes import check_success
from oip_conformance.wires import HEADER_LENGTH, Output, Rest, pack

# Tensors by name, for requests that mix binary and JSON tensors.
TENSORS = {
    "int16": Output("INT16", [3], [1, -2, 300]),
    "bytes": Output("BYTES", [2], ["", "naïve"]),
    "pairs": Output("FP32", [1, 2], [0.5, -1.5]),
}


class BinaryResponse(NamedTuple):
    """The JSON of a response, and the bytes that follow it."""

    body: dict[str, Any]
    blobs: bytes


def json_tensor(name: str) -> dict[str, Any]:
    """Return a tensor of TENSORS as a JSON input."""
    return json_input(f"{name}_in", *TENSORS[name])


def binary_tensor(name: str, **members: Any) -> tuple[dict[str, Any], bytes]:
    """Return a tensor of TENSORS as a binary input, and its bytes.

    `members` replace members of the input.
    """
    datatype, shape, values = TENSORS[name]
    blob = pack(datatype, values)
    tensor = binary_input(f"{name}_in", datatype, shape, size=len(blob))
    return {**tensor, **members}, blob


def binary_input(name: str, datatype: str, shape: Any, *, size: Any) -> dict[str, Any]:
    """Return an input as JSON whose elements follow in `size` bytes."""
    parameters = {"binary_data_size": size}
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}


def requested_output(name: str, binary: bool | None) -> dict[str, Any]:
    """Return a requested output in binary form or JSON.

    If `binary` is None, the request's parameter applies.
    """
    output: dict[str, Any] = {"name": f"{name}_out"}
    if binary is not None:
        output["parameters"] = {"binary_data": binary}
    return output


def binary_output(name: str) -> dict[str, Any]:
    return requested_output(name, binary=True)


def json_output(name: str) -> dict[str, Any]:
    return requested_output(name, binary=False)


def send_binary(
    rest: Rest,
    datatype: str,
    shape: list[int],
    blob: bytes,
    *,
    name: str | None = None,
    size: Any = None,
) -> Reply:
    """Send a binary input and return the reply with binary output.

    The default for `name` is the input of one dimension with this datatype. The default for the
    stated size is the correct one.
    """
    input_name = f"{name}_in" if name else input_of(datatype)
    if size is None:
        size = len(blob)
    tensor = binary_input(input_name, datatype, shape, size=size)
    output = {"name": output_of(input_name), "parameters": {"binary_data": True}}
    return rest.post({"inputs": [tensor], "outputs": [output]}, blob)


def read_binary(reply: Reply) -> BinaryResponse:
    """Return the JSON and the binary data of a response (B7)."""
    check_success(reply)
    assert HEADER_LENGTH in reply.headers, f"expected the header {HEADER_LENGTH}, got {reply}"
    length = int(reply.headers[HEADER_LENGTH])
    return BinaryResponse(json.loads(reply.data[:length]), reply.data[length:])


def check_next_request(rest: Rest) -> None:
    """Check that the connection accepts the next request."""
    tensor, blob = binary_tensor("int16")
    reply = rest.post({"inputs": [tensor], "outputs": [binary_output("int16")]}, blob)
    response = read_binary(reply)
    assert response.blobs == blob, f"expected {blob!r} as the next response, got {response.blobs!r}"
