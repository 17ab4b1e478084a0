"""Requests for the HTTP cases, and checks of their responses."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable

from oip_conformance.client import Http, Reply
from oip_conformance.inputs import SMALL, json_input
from oip_conformance.outcomes import success

BODY = json.dumps({"inputs": [json_input(*SMALL)], "outputs": [{"name": "fp32_out"}]}).encode()
LARGE = json.dumps(
    {
        "inputs": [json_input("bytes_in", "BYTES", [1], ["x" * 2000])],
        "outputs": [{"name": "bytes_out"}],
    }
)
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


def check_echo(reply: Reply) -> None:
    """Check that the reply is the response to BODY."""
    data = success(reply).json["outputs"][0]["data"]
    assert data == SMALL[3], f"expected {SMALL[3]}, got {data}"


def check_next_request(http: Http, infer_path: str) -> None:
    """Check that the connection is open and accepts the next request."""
    assert http.connection.sock is not None, "the server closed the connection"
    check_echo(http.post(infer_path, BODY))
