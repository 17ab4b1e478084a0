"""`make conformance` in a project tests the project's own code with the conformance suite of its template."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.environments import link_packages, make_project

from .baking import commit_all, copy_template

# pip installs the suite. In the gate, .ci/run calls make conformance in a new project.
pytestmark = pytest.mark.slow


def make_conformance(project: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `make conformance` with the cases of one rule, and with a setting that the target must ignore."""
    environment = {**os.environ, "MAKEFLAGS": "", "MODEL_NAME": "other", **variables}
    command = ["make", "--no-print-directory", "conformance", "ARGS=--rule R9"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project in which `make conformance` has installed the suite, and has passed."""
    template = copy_template(tmp_path_factory.mktemp("template") / "template")
    commit_all(template)
    project = link_packages(make_project(tmp_path_factory.mktemp("out"), template))
    done = make_conformance(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"git+file://{template}@" in done.stdout
    return project


@pytest.fixture
def project(tested: Path, tmp_path: Path) -> Path:
    """Return a copy of the project that a test may change. The suite is installed."""
    return shutil.copytree(tested, tmp_path / "project", symlinks=True)


def test_detects_broken_rule(project: Path) -> None:
    """A change that breaks a rule of the protocol fails, and the installed suite is used again."""
    routes = project / "app/rest/routes.py"
    routes.write_text(routes.read_text().replace("InvalidInput: 400", "InvalidInput: 418"))
    done = make_conformance(project)
    assert done.returncode != 0
    assert "failed  R9: " in done.stdout
    assert "Installing" not in done.stdout


def test_service_that_does_not_start(project: Path) -> None:
    """If the changed code does not start, the command shows the log of the service and fails."""
    (project / "app/custom.py").write_text("raise OSError('no such table')\n")
    done = make_conformance(project)
    assert done.returncode != 0
    assert "no such table" in done.stderr
    assert "The service does not start." in done.stderr


def test_unknown_template(project: Path) -> None:
    """Without a record of the template, the command explains how to install the suite from a path."""
    (project / ".cruft.json").unlink()
    done = make_conformance(project)
    assert done.returncode != 0
    assert "Run make conformance CONFORMANCE=TEMPLATE/conformance" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_suite(project: Path) -> None:
    """CONFORMANCE overrides the recorded template, and a suite that cannot be installed is named."""
    done = make_conformance(project, CONFORMANCE="./nowhere")
    assert done.returncode != 0
    assert "Conformance suite not installed: ./nowhere." in done.stderr
    assert "Traceback" not in done.stderr
