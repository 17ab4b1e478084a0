"""The tests that a project gets: two files for any model, and pytest settings for its owner."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.environments import LOCAL, ROOT, give_messages, make_project

# Ignores MODEL_DIR, has no EXAMPLE, and rejects the values that are made up for a request.
PICKY = """
import numpy as np

from app.protocol.errors import InvalidInput
from app.protocol.metadata import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name="picky",
    version="1",
    platform="test",
    inputs=[MetadataTensor("size", "FP32", [-1, 3]), MetadataTensor("code", "BYTES", [-1], content_type="str")],
    outputs=[MetadataTensor("total", "FP32", [-1])],
)


def load():
    return 2


def predict(model, size: np.ndarray, code: list[str]):
    if any(not each.isdigit() for each in code):
        raise InvalidInput("Code: invalid text. Expected digits.")
    return {"total": model * size.sum(axis=1)}
"""
THIRD_PARTY = """
import warnings


def old_function(rows):
    warnings.warn("old_function is deprecated", FutureWarning, stacklevel=2)
    warnings.warn("old_function needs time", UserWarning, stacklevel=1)
    return rows
"""

PREDICT = """def predict(model, features: np.ndarray):
    from app.features import scaled

    features = scaled(features)"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project."""
    return give_messages(make_project(tmp_path_factory.mktemp("made"), project_slug="made"))


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """Return a copy of the project that a test may change."""
    return shutil.copytree(made, tmp_path / "out" / "made")


def run_tests(
    project: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest as a project's `make test` does, with the packages that are installed here."""
    path = os.pathsep.join([str(project), str(project.parent)])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env={**os.environ, **LOCAL, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
    )


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_files_of_tests(project: Path) -> None:
    """A project has two test files, and two files for `make conformance`."""
    assert {path.name for path in (project / "tests").iterdir()} == {
        "conformance_model.py",
        "run_conformance.py",
        "test_predict.py",
        "test_service.py",
    }


def test_project_tests_pass(project: Path) -> None:
    """All tests of a new project pass, and none is skipped."""
    done = run_tests(project)
    assert done.returncode == 0, done.stdout
    assert " 11 passed in " in done.stdout


def test_smoke_test_ignores_settings(project: Path) -> None:
    """The smoke test passes even if the environment contains settings of another service."""
    done = run_tests(
        project,
        "tests/test_service.py",
        HTTP_PORT="1",
        API_KEYS_FILE="/nowhere",
        MODEL_NAME="other",
    )
    assert done.returncode == 0, done.stdout


def test_smoke_test_accepts_other_models(project: Path) -> None:
    """The smoke test passes for a model that has no EXAMPLE, does not read MODEL_DIR and rejects made-up values."""
    (project / "app/predict.py").write_text(PICKY)
    done = run_tests(project, "tests/test_service.py")
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_smoke_test_detects_wrong_example(project: Path) -> None:
    """The smoke test fails and shows the response if the model rejects its own EXAMPLE after the warm-up."""
    (project / "app/predict.py").write_text(
        f'{PICKY}\n\nEXAMPLE = {{"size": [[1, 2, 3]], "code": ["a"]}}\n'
    )
    edit(
        project / "app/predict.py", "def load():", "def warm_up(model):\n    pass\n\n\ndef load():"
    )
    done = run_tests(project, "tests/test_service.py")
    assert done.returncode == 1
    assert "Code: invalid text. Expected digits." in done.stdout


def test_smoke_test_detects_failed_load(project: Path) -> None:
    """The smoke test fails with the service's log if load() raises an exception."""
    edit(
        project / "app/predict.py",
        "return dict(",
        "raise OSError('no such model')\n    return dict(",
    )
    done = run_tests(project, "tests/test_service.py")
    assert done.returncode == 1
    assert "no such model" in done.stdout


def test_third_party_warnings_are_not_errors(project: Path) -> None:
    """Deprecations and warnings from packages are only displayed, also for modules next to predict.py."""
    (project.parent / "thirdparty.py").write_text(THIRD_PARTY)
    (project / "app/features.py").write_text(
        "from thirdparty import old_function\n\nscaled = old_function\n"
    )
    edit(project / "app/predict.py", "def predict(model, features: np.ndarray):", PREDICT)
    done = run_tests(project, "tests/test_predict.py")
    assert done.returncode == 0, done.stdout
    assert "FutureWarning: old_function is deprecated" in done.stdout
    assert "UserWarning: old_function needs time" in done.stdout


def test_warnings_in_owner_code_are_errors(project: Path) -> None:
    """A division by zero in predict.py fails the tests."""
    edit(project / "app/predict.py", "return dict(", "np.zeros(1) / 0\n    return dict(")
    done = run_tests(project, "tests/test_predict.py")
    assert done.returncode == 1
    assert "RuntimeWarning" in done.stdout


@pytest.mark.parametrize(
    ("module", "status"),
    [("app.some", 1), ("grpc_service.some", 1), ("tests.some", 1), ("apps", 0), ("pandas", 0)],
)
def test_warnings_in_our_code_are_errors(tmp_path: Path, module: str, status: int) -> None:
    """In this repository, a deprecation in our own code fails the tests, and one in another package does not."""
    script = f"import warnings\ndef test(): warnings.warn_explicit('x', DeprecationWarning, 'f', 1, {module!r})\n"
    (tmp_path / "test_it.py").write_text(script)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_timeout",
    ]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stdout
