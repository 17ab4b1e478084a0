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
    settings = {"FOLDER": folder, "MAX_REQUEST_BYTES": 2**20}
    with gunicorn(ROOT, "tests.service.table_apps:rows()", **settings) as running:
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
        if transport == "grpc":
            address_options = grpc_at(at.grpc_address)
        else:
            address_options = ["--transport", transport, "--url", f"http://{at.http_address}"]
        arguments = [str(word) for word in words]
        command = ["infer", *arguments, *address_options]
        result = CliRunner().invoke(main, command, input=stdin)
        assert result.exit_code == status, (result.exit_code, result.stderr, result.exception)
        return result

    return run
