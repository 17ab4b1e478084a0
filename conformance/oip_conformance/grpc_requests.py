"""Requests for the gRPC cases."""

from __future__ import annotations

from typing import Any

from oip_conformance.outcomes import expect
from oip_conformance.wires import Response


def tensor(name: str, datatype: str, shape: list[int], **contents: list) -> dict[str, Any]:
    made = {"name": f"{name}_in", "datatype": datatype, "shape": shape}
    return {**made, "contents": contents} if contents else made


def check_invalid_argument(response: Response, *named: str) -> None:
    expect(response, "INVALID_ARGUMENT", *named)
    assert response.text, "expected a text, got none"
