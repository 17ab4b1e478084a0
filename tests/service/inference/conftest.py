"""Fixture: a service with inputs that are required and optional."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.service import models
from tests.service.conftest import Service
from tests.service.inference.batches import Crowd


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two())


@pytest.fixture
def crowd(serve: Callable[..., Service]) -> Iterator[Callable[..., Crowd]]:
    crowds: list[Crowd] = []

    def gather(**settings: Any) -> Crowd:
        crowds.append(Crowd(serve, **settings))
        return crowds[-1]

    yield gather
    for each in crowds:
        each.model.go.set()
        each.pool.shutdown()
