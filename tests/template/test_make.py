"""The Makefile's targets, where one of their tools finds fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .environments import make_project

BESIDE = Path(sys.executable).parent


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
    return subprocess.run(["make", *arguments], cwd=project, capture_output=True, text=True)


def test_lint_runs_every_tool(project: Path) -> None:
    """What each has to say of a bad file is told in one run, which fails; that of a new project does not."""
    assert make(project, "lint").returncode == 0
    (project / "app/bad.py").write_text("import os\nx: int = 'text' \n")
    done = make(project, "lint")
    assert done.returncode != 0
    for told in ("F401", "would be reformatted", "Incompatible types in assignment"):
        assert told in done.stdout


def test_format_formats_what_cannot_be_fixed(project: Path) -> None:
    """A fault that has no fix is told, and the file is formatted nevertheless."""
    bad = project / "app/bad.py"
    bad.write_text("import os\nx = [ unknown ] \n")
    done = make(project, "format")
    assert done.returncode != 0
    assert "F821" in done.stdout
    assert bad.read_text() == "x = [unknown]\n"


@pytest.mark.parametrize(
    ("python", "told"),
    [
        ("python3.99", "python3.99 does not run here"),
        ("false", "false does not run here"),
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
    assert f"{told}; name a Python of 3.10 or newer: make PYTHON=python3.12 ..." in done.stdout
    assert not (made / ".venv").exists()
