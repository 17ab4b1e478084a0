"""The conformance suite is a distribution of its own, which needs nothing of this repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import grpc_service.messages
import oip_conformance.messages
from tests.kit.environments import ROOT, run
from tests.kit.processes import gunicorn


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a git repository with the suite and with what its links refer to."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("conformance", "protos"):
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "*.binpb")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    identity = ["-c", "user.name=you", "-c", "user.email=you@example.com"]
    for command in (
        ["init", "--quiet"],
        ["add", "--all"],
        [*identity, "commit", "--quiet", "--message=all"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def environment(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new virtual environment with the suite, installed from git."""
    folder = tmp_path_factory.mktemp("environment")
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder)
    source = f"git+file://{repository}#subdirectory=conformance"
    run(*uv, "pip", "install", "--quiet", "--python", folder / "bin/python", source)
    return folder


@pytest.mark.timeout(600)  # the first test installs the suite
def test_installed_command_tests_a_server(environment: Path, tmp_path: Path) -> None:
    """The command of an installation outside this repository tests a server through its ports."""
    command = [environment / "bin/oip-conformance", "--rule", "R5,R6"]
    with gunicorn(ROOT, "tests.conformance_model:create_service()") as service:
        addresses = ["--http", f"http://{service.http_address}", "--grpc", service.grpc_address]
        done = subprocess.run([*command, *addresses], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nall " in done.stdout


@pytest.mark.timeout(600)  # the first test installs the suite
def test_installation_has_no_service(environment: Path, tmp_path: Path) -> None:
    """The suite installs neither the service nor its tests, and imports without them."""
    code = """
import importlib.util, pkgutil, oip_conformance
for module in pkgutil.walk_packages(oip_conformance.__path__, "oip_conformance."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
print([name for name in ("app", "grpc_service", "tests", "dev") if importlib.util.find_spec(name)])
"""
    done = run(environment / "bin/python", "-I", "-c", code)
    assert done == "[]\n"


def test_same_messages() -> None:
    """The suite and the service have the same proto."""
    suite, service = oip_conformance.messages.DESCRIPTOR, grpc_service.messages.DESCRIPTOR
    assert suite.read_bytes() == service.read_bytes()
