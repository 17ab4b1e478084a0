"""The lock files of the image and of each framework match setup.cfg and pyproject.toml."""

from __future__ import annotations

import configparser
import re
from functools import partial
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from .helm import ROOT

LOCK, BUILD_LOCK = ROOT / "deploy/requirements.txt", ROOT / "deploy/requirements-build.txt"
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/requirements.txt"))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
MACHINES = ["x86_64", "aarch64"]
STALE = "The lock file does not match the requirements. Run make lock"


def service() -> list[Requirement]:
    """Return the requirements in setup.cfg."""
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "setup.cfg")
    return [
        Requirement(line) for line in parser["options"]["install_requires"].strip().splitlines()
    ]


def build() -> list[Requirement]:
    """Return the build requirements in pyproject.toml."""
    (line,) = re.findall(
        r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    return [Requirement(text) for text in re.findall(r'"(.*?)"', line)]


def locked(path: Path) -> list[tuple[Requirement, list[str]]]:
    """Return the packages of a lock file, each with its hashes."""
    entries = re.split(
        r"\n(?=\w)",
        re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", ""),
    )
    return [
        (Requirement(re.split(r"\s+--hash=", entry)[0]), re.findall(r"--hash=(\S+)", entry))
        for entry in entries
    ]


def example(folder: Path) -> list[Requirement]:
    """Return the requirements of a project with the framework."""
    lines = (folder / "requirements.txt").read_text().splitlines()
    return [*service(), *(Requirement(line) for line in lines if line[0] != "#")]


ASKED = {
    LOCK: service,
    BUILD_LOCK: build,
    **{folder / "lock.txt": partial(example, folder) for folder in EXAMPLES},
}
every_lock = pytest.mark.parametrize("lock", ASKED, ids=lambda lock: str(lock.relative_to(ROOT)))


@every_lock
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_lock_contains_requirements(lock: Path, python: str, machine: str) -> None:
    """For each Python and machine, the lock contains every requirement once, with a version in its range."""
    place = default_environment() | {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
    }
    place |= {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "platform_machine": machine,
    }
    pinned = [
        requirement
        for requirement, _ in locked(lock)
        if requirement.marker is None or requirement.marker.evaluate(place)
    ]
    versions = {
        requirement.name: str(requirement.specifier).removeprefix("==") for requirement in pinned
    }
    assert len(versions) == len(pinned)
    for requirement in ASKED[lock]():
        if requirement.marker is None or requirement.marker.evaluate(place):
            assert requirement.name in versions, f"{STALE}: {requirement}"
            assert requirement.specifier.contains(versions[requirement.name]), (
                f"{STALE}: {requirement}"
            )


@every_lock
def test_lock_contains_only_hashed_packages(lock: Path) -> None:
    """Every package has one version and hashes, and the lock contains no URLs or options."""
    for requirement, hashes in locked(lock):
        assert re.fullmatch(r"==[\w.+!]+", str(requirement.specifier)), requirement
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement
    assert "://" not in lock.read_text()
    assert not re.search(r"^\s*-[^-]|^\s*--(?!hash)", lock.read_text(), re.MULTILINE)
