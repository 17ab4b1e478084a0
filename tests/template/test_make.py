"""The Makefile's targets report errors of their tools and of their arguments."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kit.environments import ROOT, make_project

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


@pytest.fixture(scope="module")
def new_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("made"))


@pytest.fixture
def project(new_project: Path, tmp_path: Path) -> Path:
    """Return a copy of a new project. Its environment contains the tools of this one."""
    folder = shutil.copytree(new_project, tmp_path / "made")
    bin_folder = folder / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    for tool in ("python", "ruff", "mypy"):
        (bin_folder / tool).symlink_to(BESIDE / tool)
    for stamp in (".serve", ".dev"):
        (folder / ".venv" / stamp).touch()
    return folder


def make(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make with the same output even if another make runs the tests."""
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=project, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True
    )


def test_lint_runs_every_tool(project: Path) -> None:
    """One run of `make lint` shows the errors of every tool and fails. The other files of a project have none."""
    (project / "app/bad.py").write_text("x: int = 'text'\ny = unknown\n")
    done = make(project, "lint")
    assert done.returncode != 0
    of_ruff, of_mypy = done.stdout.split(".venv/bin/mypy\n")
    assert "F821" in of_ruff
    assert "Found 1 error.\n" in of_ruff
    assert "Incompatible types in assignment" in of_mypy
    assert "in 1 file (" in of_mypy


def test_lint_is_lenient_to_owner(project: Path) -> None:
    """Modules next to predict.py need no annotations, no sorted imports and no formatting."""
    (project / "app/features.py").write_text(OWNERS_MODULE)
    predict = project / "app/predict.py"
    predict.write_text(
        predict.read_text().replace(
            "import numpy as np\n", "from app.features import *\nimport numpy as np\n"
        )
    )
    done = make(project, "lint")
    assert done.returncode == 0, done.stdout


def test_check_runs_linters_and_tests(project: Path) -> None:
    """`make check` runs the tests even if a linter fails, and fails if a linter or a test fails."""
    python, mypy = project / ".venv/bin/python", project / ".venv/bin/mypy"
    python.unlink()
    mypy.unlink()
    mypy.symlink_to("/bin/true")  # mypy takes long, and other tests run it
    python.write_text(
        f'#!/bin/sh\nexec {BESIDE / "python"} "$@"\n'
    )  # a link would not find the packages
    python.chmod(0o755)
    for test in (project / "tests").glob("test_*.py"):
        test.unlink()
    test, bad = project / "tests/test_new.py", project / "app/bad.py"
    for code, is_right, expected in [
        ("x = 1", True, "1 passed"),
        ("unknown", True, "F821"),
        ("unknown", True, "1 passed"),
        ("x = 1", False, "1 failed"),
    ]:
        bad.write_text(f"{code}\n")
        test.write_text(f"def test_new():\n    assert {is_right}\n")
        done = make(project, "check")
        assert expected in done.stdout, done.stdout + done.stderr
        assert (done.returncode == 0) == (code == "x = 1" and is_right)


def test_check_of_this_repository() -> None:
    """`make check` runs all linters of this repository and test files that exist."""
    done = make(ROOT, "--dry-run", "check")
    assert "'ruff format --check'" in done.stdout
    named = re.findall(r"tests/[\w/.]+", done.stdout)
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / name).exists()]


def test_clean_removes_the_environment(project: Path) -> None:
    """`make clean` removes the environment of the project."""
    assert make(project, "clean").returncode == 0
    assert not (project / ".venv").exists()


@pytest.mark.parametrize("of", ["root", "project"])
def test_help_lists_every_target(project: Path, of: str) -> None:
    """A bare `make` lists the targets with their descriptions, like `make help`."""
    folder = ROOT if of == "root" else project
    done = make(folder)
    assert done.stdout == make(folder, "help").stdout
    targets = set(
        re.search(r"^\.PHONY: (.*)$", (folder / "Makefile").read_text(), re.MULTILINE)[1].split()
    )
    listed = dict(re.findall(r"^([a-z]+) +(\S.*)$", done.stdout, re.MULTILINE))
    assert listed.keys() >= targets
    assert ("optimizations" in listed) == (of == "root")


def test_format_with_an_unfixable_error(project: Path) -> None:
    """`make format` reports an error without a fix, and still formats the file."""
    bad = project / "app/bad.py"
    bad.write_text("x = [ unknown ] \n")
    done = make(project, "format")
    assert done.returncode != 0
    assert "F821" in done.stdout
    assert bad.read_text() == "x = [unknown]\n"


def test_pre_commit_hooks_run_without_network(project: Path) -> None:
    """The hooks are commands of the project's environment, and fix a file."""
    (repo,) = yaml.safe_load((project / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    file = project / "app/features.py"
    file.write_text("x = [ 1 ] \n")
    for hook in repo["hooks"]:
        subprocess.run([*hook["entry"].split(), file], cwd=project, check=True)
    assert file.read_text() == "x = [1]\n"


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("python3.99", "Cannot run python3.99"),
        ("false", "Cannot run false"),
        ("./old", "Python 3.9.1 is too old"),
    ],
)
def test_rejects_unusable_python(
    new_project: Path, tmp_path: Path, python: str, expected: str
) -> None:
    """An unusable PYTHON is reported with a valid example, and no environment is created."""
    folder = shutil.copytree(new_project, tmp_path / "made")
    old = folder / "old"
    old.write_text(
        '#!/bin/sh\ncase "$2" in *version_info*) exit 1;; esac\ntest "$1" != --version || echo Python 3.9.1\n'
    )
    old.chmod(0o755)
    done = make(folder, "serve", f"PYTHON={python}")
    assert done.returncode != 0
    assert f"{expected}. Select Python 3.11 or newer: make PYTHON=python3.12 ..." in done.stdout
    assert not (folder / ".venv").exists()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_long_model_names_need_no_formatting(tmp_path: Path, framework: str) -> None:
    """A new project is formatted, regardless of the length of the model's name."""
    folder = make_project(
        tmp_path, framework=framework, model_name="m" * 100, model_version="v" * 100
    )
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [BESIDE / "ruff", *command, "."], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


def test_rejects_invalid_version(project: Path) -> None:
    """A version that is invalid for Python, the chart or the image tag is rejected, and no file changes."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    invalid_versions = [
        "v1.2.3",
        "1.2",
        "v1.0",
        "x&y",
        "a/b",
        "1.2.3.4",
        "1.02.3",
        "1.2.3+b5",
        "1.2.3-",
        "1.2.3-x.1",
    ]
    for version in ("", *invalid_versions, "1 2", "1.2.3\n4"):
        done = make(project, "version", f"VERSION={version}")
        assert done.returncode != 0
        assert (
            done.stdout
            == f"Invalid version '{version}'. Run: make version VERSION=1.2.3, or 1.2.3-rc.1\n"
        )
    assert before == {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}


def test_version_changes_only_the_service(project: Path) -> None:
    """`make version` does not change equal version numbers of Kubernetes or in examples."""
    chart, readme = project / "deploy/helm/Chart.yaml", project / "README.md"
    # 0.0.1 is a part of 127.0.0.1.
    for version in ("1.25.0", "1.2.3", "1.2.4-rc1", "1.2.4-rc.2", "0.0.1", "1.26.0"):
        assert make(project, "version", f"VERSION={version}").returncode == 0
        assert (
            f'\nversion: {version}\nappVersion: "{version}"\nkubeVersion: ">=1.25.0-0"\n'
            in chart.read_text()
        )
        assert "`make version VERSION=1.2.3`" in readme.read_text()
        assert "127.0.0.1:8080" in readme.read_text()
        assert f"open-inference-service:{version} .\n" in readme.read_text()
        assert (
            f"open-inference-service:{version}\n"
            in (project / "deploy/kserve/inferenceservice.yaml").read_text()
        )
    assert not [*project.rglob("*.old")]
