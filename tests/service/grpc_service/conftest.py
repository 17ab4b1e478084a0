"""Fixture: a service with a small size limit."""

from __future__ import annotations

import pytest

from tests.kit import models
from tests.service.grpc_service.requests import LIMIT


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two(), max_request_bytes=LIMIT)
