"""Fixtures: a service with a small size limit, and its client."""

from __future__ import annotations

import pytest

from tests.kit import models
from tests.service.rest.requests import LIMIT


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two(), max_request_bytes=LIMIT)


@pytest.fixture(scope="module")
def client(service):
    return service.client
