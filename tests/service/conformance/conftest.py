"""The cases of the conformance suite, for a service in this process. The link `cases` refers to the suite's cases."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing

import pytest

# What the cases need, as in a run of the suite's command.
from oip_conformance.plugin import (  # noqa: F401
    form,
    http,
    infer_path,
    limit,
    prepare_case,
    pytest_assertrepr_compare,
    pytest_configure,
    pytest_generate_tests,
    pytest_make_parametrize_id,
    rest,
    rpc,
)
from oip_conformance.target import Target
from tests import conformance_model
from tests.kit.http_thread import serve_http
from tests.kit.service import Service

LIMIT = 2**20
# The tests can run on a busy machine.
TIMEOUT_SECONDS = 60


@pytest.fixture(scope="module")
def target(serve: Callable[..., Service]) -> Iterator[Target]:
    """Yield the suite's view of a new service: its HTTP server, in a thread, and its gRPC server."""
    service = serve(conformance_model, max_request_bytes=LIMIT)
    with serve_http(service) as port:
        addresses = f"http://127.0.0.1:{port}", f"127.0.0.1:{service.server.port}"
        target = Target(*addresses, model="conformance", limit=LIMIT, timeout=TIMEOUT_SECONDS)
        with closing(target):
            yield target


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Fail instead of a skip, because this service supports every feature."""
    try:
        yield
    except pytest.skip.Exception as skip:
        pytest.fail(f"This service supports every feature, but the case is skipped: {skip}")


# A case can also skip itself.
pytest_runtest_call = pytest_runtest_setup
