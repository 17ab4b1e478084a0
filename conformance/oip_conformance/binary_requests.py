"""Requests with binary tensors."""

from __future__ import annotations

import json
from typing import Any

from oip_conformance.client import Reply
from oip_conformance.inputs import json_input
from oip_conformance.outcomes import success
from oip_conformance.wires import Rest, pack

LENGTH = "Inference-Header-Content-Length"
# Datatype, shape and elements by name, for requests that mix binary and JSON tensors.
TENSORS: dict[str, tuple[str, list[int], list]] = {
    "int16": ("INT16", [3], [1, -2, 300]),
    "bytes": ("BYTES", [2], ["", "naïve"]),
    "pairs": ("FP32", [1, 2], [0.5, -1.5]),
}


def tensor(name: str, binary: bool = True, **members: Any) -> tuple[dict[str, Any], bytes]:
    """Return an input of TENSORS and its bytes, or b"" for JSON. `members` replace members of the input."""
    datatype, shape, values = TENSORS[name]
    if not binary:
        return {**json_input(f"{name}_in", datatype, shape, values), **members}, b""
    blob = pack(datatype, values)
    parameters = {"binary_data_size": len(blob)}
    return {
        "name": f"{name}_in",
        "datatype": datatype,
        "shape": shape,
        "parameters": parameters,
        **members,
    }, blob


def requested_output(name: str, binary: bool | None = True) -> dict[str, Any]:
    """Return a requested output in binary form or JSON. If `binary` is None, the request's parameter applies."""
    return {
        "name": f"{name}_out",
        **({} if binary is None else {"parameters": {"binary_data": binary}}),
    }


def send(
    rest: Rest, name: str, datatype: str, shape: list[int], blob: bytes, size: Any = None
) -> Reply:
    """Send a binary input and return the reply with binary output."""
    parameters = {"binary_data_size": len(blob) if size is None else size}
    made = {"name": f"{name}_in", "datatype": datatype, "shape": shape, "parameters": parameters}
    return rest.post({"inputs": [made], "outputs": [requested_output(name)]}, blob)


def read(reply: Reply) -> tuple[dict[str, Any], bytes]:
    """Return the JSON and the binary data of a response (B7)."""
    success(reply)
    assert LENGTH in reply.headers, f"expected the header {LENGTH}, got {reply}"
    length = int(reply.headers[LENGTH])
    return json.loads(reply.data[:length]), reply.data[length:]


def check_next_request(rest: Rest) -> None:
    """Check that the connection accepts the next request."""
    made, blob = tensor("int16")
    got = read(rest.post({"inputs": [made], "outputs": [requested_output("int16")]}, blob))[1]
    assert got == blob, f"expected {blob!r} as the next response, got {got!r}"
