"""Fixture: a service for requests with binary data."""

from __future__ import annotations

import pytest

from tests.kit import models


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.several())
