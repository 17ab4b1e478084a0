"""Fixtures: create projects from the template with given answers."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTEXT = json.loads((ROOT / "cookiecutter.json").read_text())
Bake = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bake(tmp_path: Path) -> Bake:
    """Return bake(source, option, answer=...), which runs cookiecutter on `source` into tmp_path / "out"."""

    def run(
        source: Path | str = ROOT, *options: str, **answers: str
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "out").mkdir(exist_ok=True)
        words = [*options, *(f"{name}={value}" for name, value in answers.items())]
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "cookiecutter",
                str(source),
                "--no-input",
                "-o",
                str(tmp_path / "out"),
                *words,
            ],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def setup_metadata(project: Path) -> configparser.SectionProxy:
    """Return the [metadata] section of setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(project / "setup.cfg", encoding="utf-8")
    return parser["metadata"]


def setup_without_docs() -> str:
    """Return this repository's setup.cfg without the extra for its documentation site, which projects do not have."""
    text, count = re.subn(
        r"^docs =\n(    .*\n)+", "", (ROOT / "setup.cfg").read_text(), flags=re.MULTILINE
    )
    assert count == 1
    return text


def copy_template(target: Path) -> Path:
    """Copy this repository's files, as git lists them, to another directory. Keep symbolic links."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split("\0"):
        source = ROOT / name
        if name and (source.is_symlink() or source.is_file()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    return target


def commit_all(folder: Path) -> str:
    """Commit all files of the directory, in a new git repository if it has none. Return the commit."""

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=you", "-c", "user.email=you@example.com"]
        command = ["git", "-C", str(folder), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "--quiet", "--initial-branch", "main")
    git("add", "--all")
    git("commit", "--quiet", "--no-verify", "--message", "change")
    return git("rev-parse", "HEAD")
