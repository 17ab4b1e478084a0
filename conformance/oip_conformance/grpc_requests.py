"""Requests for the gRPC cases, and checks of their responses."""

from __future__ import annotations

from typing import Any

from oip_conformance.outcomes import expect_error
from oip_conformance.wires import Response


def grpc_input(name: str, datatype: str, shape: list[int], **contents: list) -> dict[str, Any]:
    """Return an input as the fields of a message, without contents if there are no arguments."""
    fields: dict[str, Any] = {"name": f"{name}_in", "datatype": datatype, "shape": shape}
    if contents:
        fields["contents"] = contents
    return fields


def check_invalid_argument(response: Response) -> None:
    """Check that the response is INVALID_ARGUMENT, with a text."""
    expect_error(response, "INVALID_ARGUMENT")
    assert response.text, "expected a text, got none"
