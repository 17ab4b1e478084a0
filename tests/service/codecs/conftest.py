"""Fixture: the registries of codecs, restored after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.codecs.base import input_codecs, request_codecs


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Remove the codecs that a test's model registers."""
    kept = dict(input_codecs), dict(request_codecs)
    yield
    for registry, codecs in zip((input_codecs, request_codecs), kept, strict=True):
        registry.clear()
        registry.update(codecs)
