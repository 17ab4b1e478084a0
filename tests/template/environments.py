"""Environments of other people's packages, beside the one that the tests run in."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make_environment(name: str, requirements: Path, python: str | Path = sys.executable) -> Path:
    """The Python of .venv-NAME, an environment made anew by `python` whenever `requirements` is not what it holds."""
    folder = ROOT / f".venv-{name}"
    made, stamp = folder / "bin" / "python", folder / "requirements.sha256"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not (made.exists() and stamp.exists() and stamp.read_text() == digest):
        run(python, "-m", "venv", "--clear", folder)
        run(made, "-m", "pip", "install", "--quiet", "-r", requirements)
        stamp.write_text(digest)
    return made


def run(*command: str | Path, **environment: str) -> str:
    """What the command prints; fails with that and its errors where it does not exit with 0."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
