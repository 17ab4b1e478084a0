"""The size of the service that a project gets, by package of the design.

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
    "protocol": 1000,
    "codecs": 750,
    "config": 350,
    "inference": 1450,
    "observability": 600,
    "rest": 700,
    "ui": 480,
    "server": 1250,
    "runtime": 400,
    "cli": 750,
    "grpc_service": 1080,
    "top of app": 250,
    "gunicorn.conf.py": 80,
    "setup.py": 30,
}
TOTAL = 9100
OPTIONAL = {"cli/batch": 1100}  # projects with batch_tools=yes
ASSETS = 1000  # lines of HTML, CSS and JavaScript
# The package of each module that is still directly in app/. Other modules there count as "top of app".
MODULES = {
    "protocol": "types datatypes errors binary jsontensor envelope largejson",
    "config": "config tls keys machine",
    "inference": "dataplane predictor binding contract admission batching call repository example failure",
    "observability": "logs requestlog metrics metricfiles tracing spans journal",
    "rest": "rest schemas body middleware shortway",
    "ui": "openapi page",
    "runtime": "serving preload probe hooks",
}
PACKAGES = {module: package for package, modules in MODULES.items() for module in modules.split()}
SERVICE = ["app", "grpc_service", "gunicorn.conf.py", "setup.py"]


def package_of(path: Path) -> str:
    """Return the package of a Python file, whose path is relative to the root."""
    first, *rest = path.parts
    if first != "app":
        return first
    if rest[:2] == ["cli", "batch"]:
        return "cli/batch"
    name = rest[0].removesuffix(".py")
    return PACKAGES.get(name) or (name if name in LIMITS else "top of app")


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


def test_every_package_is_within_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """No package has more lines than the design allows."""
    with capsys.disabled():
        print(f"\n{table()}")  # noqa: T201
    assert [name for name, count, limit in rows() if count > limit] == []


def test_lines_are_real() -> None:
    """No file switches the formatter off, and app/ has one file at most of a kind that is not counted."""
    for source in sources(".py"):
        assert not re.search(r"#\s*(fmt|yapf):", (ROOT / source).read_text()), source
    counted = (".py", ".html", ".css", ".js", ".svg", "py.typed", "README.md")  # projects get no README of a package
    assert (
        len([source for source in sources("") if source.parts[0] == "app" and not source.name.endswith(counted)]) <= 1
    )


if __name__ == "__main__":
    print(table())  # noqa: T201
