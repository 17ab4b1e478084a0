"""Fixtures: create projects from the template with given answers."""

from __future__ import annotations

import configparser
import json
import os
import re
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
