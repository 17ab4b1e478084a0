"""Fixtures: a service with TLS and API keys, and its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.kit.processes import Running
from tests.service.access.secure_client import KEY, WRONG_KEY, Client, Files, bearer, serve


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("access"))


@pytest.fixture(scope="module")
def service(files: Files) -> Iterator[Running]:
    """An FP32 echo with TLS and API keys, which must not be in its log."""
    with serve(files, **files.tls, API_KEYS_FILE=files.keys) as running:
        yield running
        assert KEY not in running.log()
        assert WRONG_KEY not in running.log()


@pytest.fixture
def client_with_key(service: Running, files: Files) -> Client:
    return Client(service, files.ca, headers=bearer(KEY))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
