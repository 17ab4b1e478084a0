"""A copy of this project for tests that edit it. Its model adds the number in a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PREDICT = '''"""Adds."""

import numpy as np

from app.config.settings import read_settings
from app.protocol.metadata import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name="adder",
    version="1",
    platform="test",
    inputs=[MetadataTensor("x", "FP32", [-1])],
    outputs=[MetadataTensor("y", "FP32", [-1])],
)
EXAMPLE = {"x": [1.0, 2.0]}


def load():
    return float((read_settings().model_dir / "term.txt").read_text())


def predict(model, x: np.ndarray):
    return {"y": x + model}
'''


def make_project(folder: Path) -> Path:
    """Copy the code of this project into the directory, with the model above. Return `folder`."""
    for name in ("app", "grpc_service"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("gunicorn.conf.py", "setup.cfg"):
        shutil.copy(ROOT / name, folder)
    (folder / "model").mkdir()
    (folder / "model/term.txt").write_text("0.5")
    (folder / "app/predict.py").write_text(PREDICT)
    return folder


def edit(project: Path, old: str, new: str) -> None:
    """Replace `old` by `new` in predict.py. As in many editors, a new file replaces the old one."""
    path = project / "app/predict.py"
    text = path.read_text()
    assert old in text
    new_file = path.with_suffix(".swp")
    new_file.write_text(text.replace(old, new))
    new_file.replace(path)


def command(
    *arguments: str, folder: Path = ROOT, stdin: str | None = None, **environment: object
) -> subprocess.CompletedProcess[str]:
    """Run `python -m app` with the arguments in `folder`, and return the result."""
    variables = {name: str(value) for name, value in environment.items()}
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
    )
