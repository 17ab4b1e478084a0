"""Fixture: the server with the WSGI applications in applications.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.processes import Running
from tests.kit.standalone import (
    start,
)
from tests.service.server.wsgi_client import APP


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    """All clients are trusted proxies."""
    with start(
        "--forwarder-headers", "SCRIPT_NAME,PATH_INFO,REMOTE_USER", app=f"{APP}:by_path"
    ) as running:
        yield running
