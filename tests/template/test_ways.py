"""The ways to give cookiecutter its answers: each makes the project that the answers stand for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .environments import ROOT

ANSWERS = {"project_name": "By Many Ways", "model_name": "ways", "model_version": "3", "framework": "onnx", "license": "MIT"}

Bake = Callable[..., dict[str, bytes]]


@pytest.fixture(scope="module")
def bake(tmp_path_factory: pytest.TempPathFactory) -> Bake:
    """bake(arguments..., stdin): the files of the project that comes of them, by their paths."""
    home = tmp_path_factory.mktemp("home")

    def run(*arguments: str, config: dict | None = None, stdin: str = "") -> dict[str, bytes]:
        out = tmp_path_factory.mktemp("out")
        folders = {"cookiecutters_dir": str(home / "templates"), "replay_dir": str(home / "replay")}
        (out / "config.yaml").write_text(json.dumps(folders | (config or {})))
        command = [sys.executable, "-m", "cookiecutter", str(ROOT), "--config-file", "config.yaml", *arguments]
        env = {**os.environ, "HOME": str(home)}
        done = subprocess.run(command, cwd=out, env=env, input=stdin, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (project,) = (path.parent for path in out.rglob("cookiecutter*/../gunicorn.conf.py"))
        return {str(path.relative_to(project)): path.read_bytes() for path in project.rglob("*") if path.is_file()}

    return run


@pytest.fixture(scope="module")
def plain(bake: Bake) -> dict[str, bytes]:
    """What the answers on the command line make."""
    return bake("--no-input", *(f"{name}={answer}" for name, answer in ANSWERS.items()))


def test_the_answers_of_last_time(bake: Bake, plain: dict[str, bytes]) -> None:
    assert bake("--replay") == plain
