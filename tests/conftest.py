"""Settings of all tests."""

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take the thousands of tests that each process holds out of the garbage collector's work."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collect_garbage() -> Iterator[None]:
    """Collect the garbage of each file.

    An unclosed socket then fails a test of the file that left it.
    """
    yield
    gc.collect()
