"""The service under the clients that people have: tritonclient, KServe's, and plain grpcio."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.processes import Running, gunicorn

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = Path(__file__).parent / "clients"
SCRIPTS = ["tritonclient_http.py", "tritonclient_grpc.py", "kserve_rest.py", "kserve_grpc.py", "plain_grpc.py"]


@pytest.fixture(scope="session")
def clients_python() -> Path:
    """The Python of .venv-clients, an environment made anew whenever clients/requirements.txt is not what it holds."""
    folder, requirements = ROOT / ".venv-clients", CLIENTS / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / "requirements.sha256"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not (python.exists() and stamp.exists() and stamp.read_text() == digest):
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(python, "-m", "pip", "install", "--quiet", "-r", requirements)
        stamp.write_text(digest)
    return python


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


def run(*command: str | Path, **environment: str) -> str:
    """What the command prints; fails with that and its errors where it does not exit with 0."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.timeout(900)  # the first one installs the clients
@pytest.mark.parametrize("script", SCRIPTS)
def test_client(script: str, clients_python: Path, service: Running) -> None:
    """The client gets right answers, and errors it can read, over everything it can send."""
    # httpx and grpcio would hand 127.0.0.1 to a proxy that the environment names.
    local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    said = run(clients_python, CLIENTS / script, service.http, service.grpc, "iris", **local)
    assert said.endswith(": ok\n"), said
