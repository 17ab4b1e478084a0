"""Requests of the gRPC cases."""

from __future__ import annotations

from typing import Any

from conformance.outcomes import expect
from tests.service.wires import Answer


def tensor(name: str, datatype: str, shape: list[int], **contents: list) -> dict[str, Any]:
    made = {"name": f"{name}_in", "datatype": datatype, "shape": shape}
    return {**made, "contents": contents} if contents else made


def refused(answer: Answer, *named: str) -> None:
    expect(answer, "INVALID_ARGUMENT", *named)
    assert answer.text, "expected a text, got none"
