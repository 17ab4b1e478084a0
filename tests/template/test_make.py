"""The Makefile's targets, where one of their tools finds fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .environments import ROOT, make_project

BESIDE = Path(sys.executable).parent
# Valid Python, but neither annotated nor in this repository's style.
OWNERS_MODULE = """
from typing import *
import sys, os
def scaled( rows, l = [], *, Factor=1 ) :
    unused = lambda x : x
    try: return {"rows": [Factor*row for row in rows], 'l': l}
    except: pass
assert scaled([1]) == {"rows": [1], "l": []}
print('loaded')
"""
FRAMEWORKS = json.loads((ROOT / "cookiecutter.json").read_text())["framework"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new project, whose environment has the tools of this one."""
    made = make_project(tmp_path)
    bin_folder = made / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    for tool in ("python", "ruff", "mypy"):
        (bin_folder / tool).symlink_to(BESIDE / tool)
    for stamp in (".serve", ".dev"):
        (made / ".venv" / stamp).touch()
    return made


def make(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Says the same where another make runs the tests."""
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=project, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True)


def test_lint_runs_every_tool(project: Path) -> None:
    """The errors of every tool are in the output of one run, which fails. A new project has none."""
    assert make(project, "lint").returncode == 0
    (project / "app/bad.py").write_text("x: int = 'text'\ny = unknown\n")
    done = make(project, "lint")
    assert done.returncode != 0
    for told in ("F821", "Incompatible types in assignment"):
        assert told in done.stdout


def test_lint_is_lenient_to_the_owner(project: Path) -> None:
    """Modules next to predict.py need no annotations, no sorted imports and no formatting."""
    (project / "app/features.py").write_text(OWNERS_MODULE)
    predict = project / "app/predict.py"
    predict.write_text(
        predict.read_text().replace("import numpy as np\n", "from app.features import *\nimport numpy as np\n")
    )
    done = make(project, "lint")
    assert done.returncode == 0, done.stdout


def test_format_formats_what_cannot_be_fixed(project: Path) -> None:
    """An error without a fix is reported, and the file is formatted nevertheless."""
    bad = project / "app/bad.py"
    bad.write_text("x = [ unknown ] \n")
    done = make(project, "format")
    assert done.returncode != 0
    assert "F821" in done.stdout
    assert bad.read_text() == "x = [unknown]\n"


@pytest.mark.parametrize(
    ("python", "told"),
    [
        ("python3.99", "Cannot run python3.99"),
        ("false", "Cannot run false"),
        ("./old", "Python 3.9.1 is too old"),
    ],
)
def test_a_python_that_will_not_do(tmp_path: Path, python: str, told: str) -> None:
    """What is wrong with PYTHON is told, and what would be right, and no environment is begun."""
    made = make_project(tmp_path)
    old = made / "old"
    old.write_text(
        '#!/bin/sh\ncase "$2" in *version_info*) exit 1;; esac\ntest "$1" != --version || echo Python 3.9.1\n'
    )
    old.chmod(0o755)
    done = make(made, "serve", f"PYTHON={python}")
    assert done.returncode != 0
    assert f"{told}. Select Python 3.11 or newer: make PYTHON=python3.12 ..." in done.stdout
    assert not (made / ".venv").exists()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_longest_names_need_no_formatting(tmp_path: Path, framework: str) -> None:
    """What a new project says of its model is formatted, README and all, whatever the model is called."""
    made = make_project(tmp_path, framework=framework, model_name="m" * 100, model_version="v" * 100)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([BESIDE / "ruff", *command, "."], cwd=made, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_version_that_will_not_do(project: Path) -> None:
    """What Python, the chart or an image's tag would not take is told, and nothing is changed."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    refused = ["v1.2.3", "1.2", "v1.0", "x&y", "a/b", "1.2.3.4", "1.02.3", "1.2.3+b5", "1.2.3-", "1.2.3-x.1"]
    for version in ("", *refused, "1 2", "1.2.3\n4"):
        done = make(project, "version", f"VERSION={version}")
        assert done.returncode != 0
        assert done.stdout == f"Invalid version '{version}'. Run: make version VERSION=1.2.3, or 1.2.3-rc.1\n"
    assert before == {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}


def test_a_version_is_the_services_alone(project: Path) -> None:
    """What is as the service's version was, and is another's, stays: Kubernetes', and that of an example."""
    chart, readme = project / "deploy/helm/Chart.yaml", project / "README.md"
    for version in ("1.25.0", "1.2.3", "1.2.4-rc1", "1.2.4-rc.2", "1.26.0"):
        assert make(project, "version", f"VERSION={version}").returncode == 0
        assert f'\nversion: {version}\nappVersion: "{version}"\nkubeVersion: ">=1.25.0-0"\n' in chart.read_text()
        assert "`make version VERSION=1.2.3`" in readme.read_text()
        assert f"open-inference-service:{version} .\n" in readme.read_text()
        assert f"open-inference-service:{version}\n" in (project / "deploy/kserve/inferenceservice.yaml").read_text()
    assert not [*project.rglob("*.old")]
