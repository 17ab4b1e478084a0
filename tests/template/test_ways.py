"""The ways to pass answers to cookiecutter all generate the same project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.environments import ROOT

ANSWERS = {
    "project_name": "Many Ways",
    "license": "MIT",
    "framework": "onnx",
    "model_name": "ways",
    "model_version": "3",
}
WORDS = [f"{name}={answer}" for name, answer in ANSWERS.items()]
QUESTIONS = [
    name
    for name in json.loads((ROOT / "cookiecutter.json").read_text())
    if not name.startswith("_")
]

Files = dict[str, bytes]
Bake = Callable[..., Files]


@pytest.fixture(scope="module")
def bake(tmp_path_factory: pytest.TempPathFactory) -> Bake:
    """Return bake(*arguments, folder, config, typed): the files of the generated project by path."""
    home = tmp_path_factory.mktemp("home")

    def run(
        *arguments: str,
        folder: str = "many-ways",
        config: dict[str, Any] | None = None,
        typed: str = "",
    ) -> Files:
        here = tmp_path_factory.mktemp("here")
        folders = {"cookiecutters_dir": str(home / "templates"), "replay_dir": str(home / "replay")}
        (here / "config.yaml").write_text(json.dumps(folders | (config or {})))
        command = [
            sys.executable,
            "-m",
            "cookiecutter",
            str(ROOT),
            "--config-file",
            "config.yaml",
            *arguments,
        ]
        env = {**os.environ, "HOME": str(home)}
        done = subprocess.run(
            command, cwd=here, env=env, input=typed, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = {
            str(path.relative_to(here)): path.read_bytes()
            for path in here.rglob("*")
            if path.is_file()
        }
        return {
            name.removeprefix(f"{folder}/"): text
            for name, text in found.items()
            if name != "config.yaml"
        }

    return run


@pytest.fixture(scope="module")
def expected(bake: Bake) -> Files:
    """Return the project for answers on the command line."""
    made = bake("--no-input", *WORDS)
    assert b"\nlicense_expression = MIT\n" in made["setup.cfg"]
    assert b'name="ways",\n    version="3"' in made["app/predict.py"]
    return made


def test_answers_from_config_file(bake: Bake, expected: Files) -> None:
    """Answers in default_context of a configuration file are used without a prompt."""
    assert bake("--no-input", config={"default_context": ANSWERS}) == expected


def test_replayed_answers(bake: Bake, expected: Files) -> None:
    """--replay generates the same project again."""
    assert bake("--replay") == expected


def test_typed_answers(bake: Bake, expected: Files) -> None:
    """Choices are typed by number, and an empty line accepts the default."""
    numbers = {"license": "3", "framework": "5"}
    typed = "".join(f"{numbers.get(name, ANSWERS.get(name, ''))}\n" for name in QUESTIONS)
    assert bake(typed=typed) == expected


def test_output_directory(bake: Bake, expected: Files) -> None:
    """--output-dir sets the parent directory, which is created if it does not exist."""
    assert bake("--no-input", "-o", "some/where", *WORDS, folder="some/where/many-ways") == expected
