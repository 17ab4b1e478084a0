"""`cruft update` brings changes of the template into a project and keeps the owner's changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.version import __version__

from .baking import commit_all, copy_template

BESIDE = Path(sys.executable).parent

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return run(folder, *command), which returns the output."""
    identity = {
        f"GIT_{who}_{what}": "a@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    env = {
        **os.environ,
        **identity,
        "HOME": str(tmp_path),
        "PATH": f"{BESIDE}{os.pathsep}{os.environ['PATH']}",
    }

    def run(folder: Path, *command: str) -> str:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """Return the current template in a separate repository."""
    template = copy_template(tmp_path / "template")
    commit_all(template)
    return template


@pytest.mark.parametrize(
    ("create", "answers"),
    [
        (["cruft", "create"], ["--extra-context", '{"project_name": "My Model"}']),
        (["cookiecutter"], ["project_name=My Model"]),
    ],
    ids=["cruft", "cookiecutter"],
)
def test_update(
    run: Run, template: Path, tmp_path: Path, create: list[str], answers: list[str]
) -> None:
    """Changes in linked and rendered files are applied, and the owner's predict.py, custom.py and modules are kept."""
    run(tmp_path, *create, str(template), "--no-input", *answers)
    project = tmp_path / "my-model"
    commit_all(project)

    predict = project / "app/predict.py"
    predict.write_text(predict.read_text().replace("def predict(", "# My own words.\ndef predict("))
    custom = project / "app/custom.py"
    custom.write_text(custom.read_text().replace("return []", "return [None]"))
    (project / "app/features.py").write_text("HALF = 0.5\n")
    setup = project / "setup.cfg"
    setup.write_text(
        setup.read_text().replace("    flask>=3.1\n", "    flask>=3.1\n    scipy>=1\n")
    )
    commit_all(project)
    mine = predict.read_text(), custom.read_text()

    changed = (
        "app/predict.py",
        "app/custom.py",
        "app/rest/routes.py",
        "{{cookiecutter.project_slug}}/README.md",
    )
    for name in changed:
        (template / name).write_text((template / name).read_text() + "\n# News\n")
    (template / "app/news.py").write_text('"""News."""\n')
    commit_all(template)

    run(project, "cruft", "update", "--skip-apply-ask")
    assert (project / "app/rest/routes.py").read_text().endswith("# News\n")
    assert (project / "README.md").read_text().endswith("# News\n")
    assert (project / "app/news.py").exists()
    assert (predict.read_text(), custom.read_text()) == mine
    assert (project / "app/features.py").exists()
    assert "scipy>=1" in setup.read_text()
    assert not [*project.rglob("*.rej"), *project.rglob("*.orig")]
    assert run(project, "cruft", "check")


@pytest.mark.slow
def test_update_with_conflicts(run: Run, template: Path, tmp_path: Path) -> None:
    """A conflict leaves markers, the template's lock can be checked out, and the version causes no conflict."""
    run(
        tmp_path,
        "cruft",
        "create",
        str(template),
        "--no-input",
        "--extra-context",
        '{"project_name": "My Model"}',
    )
    project = tmp_path / "my-model"
    commit_all(project)
    lock, service = project / "deploy/requirements.txt", project / "app/version.py"
    pin = next(line for line in lock.read_text().splitlines() if line.startswith("numpy=="))
    lock.write_text(lock.read_text().replace(pin, "numpy==2.0 \\"))
    run(project, "make", "version", "VERSION=5.0.0")
    commit_all(project)
    theirs = lock.read_text().replace("numpy==2.0 \\", "numpy==3.0 \\")
    (template / "deploy/requirements.txt").write_text(theirs)
    run(template, "make", "version", "VERSION=0.9.0")
    commit_all(template)

    run(project, "cruft", "update", "--skip-apply-ask")
    assert "UU app/version.py" in run(project, "git", "status", "--short")
    conflict = (
        '<<<<<<< ours\n__version__ = "5.0.0"\n=======\n__version__ = "0.9.0"\n>>>>>>> theirs\n'
    )
    assert conflict in service.read_text()

    run(project, "git", "reset", "--quiet", "--hard")
    run(project, "make", "version", f"VERSION={__version__}")
    commit_all(project)
    run(project, "cruft", "update", "--skip-apply-ask")
    unmerged = [
        line
        for line in run(project, "git", "status", "--short").splitlines()
        if line.startswith("UU")
    ]
    assert unmerged == ["UU deploy/requirements.txt"]
    run(project, "git", "checkout", "--theirs", "deploy/requirements.txt")
    assert lock.read_text() == theirs
    run(project, "make", "version", "VERSION=5.0.0")
    assert '__version__ = "5.0.0"' in service.read_text()
    assert not [*project.rglob("*.rej")]
