"""Fixture: requests that wait for a busy model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.service import Service
from tests.service.inference.batches import QueuedRequests


@pytest.fixture
def queued_requests(serve: Callable[..., Service]) -> Iterator[Callable[..., QueuedRequests]]:
    created: list[QueuedRequests] = []

    def gather(**settings: Any) -> QueuedRequests:
        created.append(QueuedRequests(serve, **settings))
        return created[-1]

    yield gather
    for queue in created:
        queue.model.go.set()
        queue.pool.shutdown()
