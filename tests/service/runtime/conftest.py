"""Fixtures: services with few threads, and a stack that closes what a test opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.kit.processes import Running, gunicorn
from tests.service.runtime.raw_client import FEW, LIMIT, ROOT


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A BYTES echo with two workers and few threads."""
    with gunicorn(
        ROOT, "tests.service.apps:echoing()", WORKERS=2, MAX_REQUEST_BYTES=LIMIT, **FEW
    ) as service:
        yield service


@pytest.fixture(scope="module")
def short_timeouts() -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:short_timeouts()", WORKERS=1, **FEW) as service:
        yield service


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
