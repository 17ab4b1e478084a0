"""Fixtures: services with models for tables, and the command `infer`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from tests.kit.processes import Running, gunicorn
from tests.service.cli.tables import ROOT, Infer, grpc_at


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("model")
    with gunicorn(
        ROOT, "tests.service.table_apps:rows()", FOLDER=folder, MAX_REQUEST_BYTES=2**20
    ) as running:
        yield running


@pytest.fixture(scope="module")
def values() -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.table_apps:values()") as running:
        yield running


@pytest.fixture
def infer(service: Running) -> Infer:
    """Return a function that runs infer and checks its exit status."""

    def run(
        *words: Any,
        status: int = 0,
        transport: str = "rest-binary",
        at: Running = service,
        stdin: bytes = b"",
    ) -> Result:
        rest = ["--transport", transport, "--url", f"http://{at.http_address}"]
        where = grpc_at(at.grpc_address) if transport == "grpc" else rest
        result = CliRunner().invoke(main, ["infer", *map(str, words), *where], input=stdin)
        assert result.exit_code == status, (result.exit_code, result.stderr, result.exception)
        return result

    return run
