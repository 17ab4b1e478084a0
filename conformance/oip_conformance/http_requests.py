"""Requests for the HTTP cases, and checks of their responses."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from oip_conformance.client import Http, Reply
from oip_conformance.inputs import SMALL_JSON, SMALL_VALUES, json_input
from oip_conformance.outcomes import check_success


def echo_request(tensor: dict[str, Any], output: str) -> bytes:
    """Return the body of a request for the output of an input."""
    return json.dumps({"inputs": [tensor], "outputs": [{"name": output}]}).encode()


def request_with_data(name: str, datatype: str, shape: Any, data: str) -> str:
    """Return a request for the output of the input `name`_in, with JSON text as its `data`."""
    tensor = (
        f'{{"name": "{name}_in", "datatype": "{datatype}", '
        f'"shape": {json.dumps(shape)}, "data": {data}}}'
    )
    return f'{{"inputs": [{tensor}], "outputs": [{{"name": "{name}_out"}}]}}'


VALID_BODY = echo_request(SMALL_JSON, "fp32_out")
# Large enough for a compressed response.
LARGE_TEXT = "x" * 2000
LARGE_BODY = echo_request(json_input("bytes_in", "BYTES", [1], [LARGE_TEXT]), "bytes_out")
Compression = Callable[[bytes], bytes]
CODINGS: dict[str, Compression] = {"gzip": gzip.compress, "deflate": zlib.compress}
# The codings as parameters of a case, which is not supported if the server lacks the coding.
SUPPORTED_CODINGS = [
    pytest.param("gzip", marks=pytest.mark.needs("gzip")),
    pytest.param("deflate", marks=pytest.mark.needs("deflate")),
]


def check_echo(reply: Reply) -> None:
    """Check that the reply is the response to VALID_BODY."""
    check_success(reply)
    output = reply.json["outputs"][0]
    data = output["data"]
    assert data == SMALL_VALUES, f"expected {SMALL_VALUES}, got {data}"


def check_next_request(http: Http, infer_path: str) -> None:
    """Check that the connection is open and accepts the next request."""
    assert http.connection.sock is not None, "the server closed the connection"
    check_echo(http.post(infer_path, VALID_BODY))
