"""What setup.cfg says that the project needs, held against what is installed and what predict.py imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from app.cli.common import Failure
from app.config import ROOT


def option(name: str) -> str:
    """What setup.cfg says of it; nothing where there is no such file."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser.get("options", name, fallback="")


def requirements() -> list[Requirement]:
    """The packages of install_requires that this Python and machine need."""
    lines = option("install_requires").splitlines()
    try:
        needed = [Requirement(line) for line in lines if line.strip() and not line.strip().startswith("#")]
    except InvalidRequirement as error:
        raise Failure(f"setup.cfg, install_requires: {error}") from None
    return [each for each in needed if each.marker is None or each.marker.evaluate()]


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def undeclared(source: Path) -> Iterator[tuple[int, str]]:
    """The packages that the code at `source` imports and setup.cfg does not bring, each with the line."""
    brought = with_dependencies(requirements())
    for line, name in imports(source):
        if canonicalize_name(name) in brought or not brought:
            continue
        providers = packages_distributions().get(name, [])
        if providers and not brought & {canonicalize_name(each) for each in providers}:
            yield line, providers[0]


def with_dependencies(wanted: list[Requirement]) -> set[str]:
    """The names of the packages, and of all that they bring."""
    names: set[str] = set()
    while wanted:
        name = canonicalize_name(wanted.pop().name)
        if name not in names and installed(name):
            found = map(Requirement, requires(name) or ())
            wanted += [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]
        names.add(name)
    return names


def imports(source: Path) -> Iterator[tuple[int, str]]:
    """The top-level packages that the code imports and neither Python nor the project brings, each once."""
    told = {*sys.stdlib_module_names}
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        for name in {each.split(".")[0] for each in names} - told:
            told.add(name)
            if not (ROOT / name).is_dir() and not (ROOT / f"{name}.py").exists():
                yield node.lineno, name
