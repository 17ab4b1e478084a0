"""Limits for the size of a project's service, by package.

python -m tests.template.test_line_limits    # print the table
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from .environments import ROOT

# Lines of Python per package.
LIMITS = {
    "protocol": 1260,
    "codecs": 775,
    "config": 370,
    "inference": 1699,
    "observability": 777,
    "rest": 700,
    "ui": 480,
    "server": 1250,
    "runtime": 450,
    "cli": 930,
    "grpc_service": 1091,
    "top of app": 270,
    "gunicorn.conf.py": 80,
    "setup.py": 30,
}
TOTAL = 10000
OPTIONAL = {"cli/batch": 1105}  # projects with batch_tools=yes
ASSETS = 1000  # lines of HTML, CSS and JavaScript
SERVICE = ["app", "grpc_service", "gunicorn.conf.py", "setup.py"]


def package_of(path: Path) -> str:
    """Return the package of a Python file, whose path is relative to the root."""
    first, *rest = path.parts
    if first != "app":
        return first
    if rest[:2] == ["cli", "batch"]:
        return "cli/batch"
    name = rest[0].removesuffix(".py")
    return name if name in LIMITS else "top of app"


def sources(*suffixes: str) -> list[Path]:
    """Return the service's files, as git lists them, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SERVICE]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [Path(name) for name in listed if name.endswith(suffixes) and (ROOT / name).is_file()]


def count_python() -> Counter[str]:
    """Count the lines per package, in the format that every file must have."""
    with tempfile.TemporaryDirectory() as temporary:
        for source in sources(".py"):
            Path(temporary, source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, Path(temporary, source))
        command = ["ruff", "format", "--quiet", "--isolated", "--line-length=120", temporary]
        subprocess.run([sys.executable, "-m", *command], check=True)
        counts: Counter[str] = Counter(dict.fromkeys([*LIMITS, *OPTIONAL], 0))
        for source in sources(".py"):
            counts[package_of(source)] += Path(temporary, source).read_bytes().count(b"\n")
    return counts


def count_assets() -> int:
    return sum((ROOT / asset).read_bytes().count(b"\n") for asset in sources(".html", ".css", ".js"))


def rows() -> list[tuple[str, int, int]]:
    """Return the name, the number of lines and the limit of each package, of all together and of the assets."""
    counts = count_python()
    total = sum(counts[package] for package in LIMITS)
    packages = [(package, counts[package], limit) for package, limit in {**LIMITS, **OPTIONAL}.items()]
    return [*packages, ("total without cli/batch", total, TOTAL), ("HTML, CSS, JavaScript", count_assets(), ASSETS)]


def table() -> str:
    lines = [f"{name:24} {count:6,} {limit:6,}{' too long' * (count > limit)}" for name, count, limit in rows()]
    return "\n".join([f"{'package':24} {'lines':>6} {'limit':>6}", *lines])


def test_packages_are_within_limits(capsys: pytest.CaptureFixture[str]) -> None:
    """No package has more lines than the design allows."""
    with capsys.disabled():
        print(f"\n{table()}")  # noqa: T201
    assert [name for name, count, limit in rows() if count > limit] == []


def test_all_lines_are_counted() -> None:
    """No file disables the formatter, and at most one file in app/ has a type that is not counted."""
    for source in sources(".py"):
        assert not re.search(r"#\s*(fmt|yapf):", (ROOT / source).read_text()), source
    counted = (".py", ".html", ".css", ".js", ".svg", "py.typed", "README.md")  # projects get no README of a package
    assert (
        len([source for source in sources("") if source.parts[0] == "app" and not source.name.endswith(counted)]) <= 1
    )


if __name__ == "__main__":
    print(table())  # noqa: T201
