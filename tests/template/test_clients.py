"""The service under the clients that people have: tritonclient, KServe's, and plain grpcio."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.processes import Running, gunicorn
from tests.template.environments import ROOT, make_environment, run

CLIENTS = Path(__file__).parent / "clients"
SCRIPTS = ["tritonclient_http.py", "tritonclient_grpc.py", "kserve_rest.py", "kserve_grpc.py", "plain_grpc.py"]


@pytest.fixture(scope="session")
def clients_python() -> Path:
    """The Python of .venv-clients, an environment of what clients/requirements.txt asks for."""
    return make_environment("clients", CLIENTS / "requirements.txt")


@pytest.fixture(scope="session", params=["root", "project"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """gunicorn with two workers: in this repository, and in a project made of it with an environment of its own."""
    folder, python = ROOT, Path(sys.executable)
    if request.param == "project":
        target = tmp_path_factory.mktemp("projects")
        run(
            sys.executable,
            "-m",
            "cookiecutter",
            ROOT,
            "--no-input",
            "-o",
            target,
            "project_slug=made",
            HOME=str(target),
        )
        folder, python = target / "made", target / "made" / ".venv" / "bin" / "python"
        run("make", "-C", folder, f"PYTHON={sys.executable}", "VENV=.venv", ".venv/.serve", MAKEFLAGS="")
    with gunicorn(folder, python=python, WORKERS=2) as running:
        yield running


@pytest.mark.timeout(900)  # the first one installs the clients
@pytest.mark.parametrize("script", SCRIPTS)
def test_client(script: str, clients_python: Path, service: Running) -> None:
    """The client gets right answers, and errors it can read, over everything it can send."""
    # httpx and grpcio would hand 127.0.0.1 to a proxy that the environment names.
    local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    said = run(clients_python, CLIENTS / script, service.http, service.grpc, "iris", **local)
    assert said.endswith(": ok\n"), said
