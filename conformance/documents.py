"""Check documents of the service."""

from __future__ import annotations

from typing import Any


def is_a(value: Any, kind: type) -> None:
    """Check that the value has this type."""
    assert isinstance(value, kind), f"expected {kind.__name__}, got {value!r}"
