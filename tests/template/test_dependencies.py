"""Which package imports which, and who may import Flask, marshmallow, grpc and gunicorn."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.kit.environments import ROOT

# The packages that both protocols share, from the bottom to the top. Every package may import the version.
SHARED = ["version", "protocol", "codecs", "config", "inference", "observability"]
MAY_IMPORT: dict[str, set[str]] = {
    "version": set(),
    "server": set(),
    "protocol": {"version"},
    "codecs": {"version", "protocol"},
    "config": {"version", "protocol"},
    "inference": {*SHARED[:4]},
    "observability": {*SHARED[:5]},
    "rest": {*SHARED},
    "ui": {*SHARED, "rest"},
    "grpc_service": {*SHARED},
    "runtime": {*SHARED, "server"},
    "api": {"protocol", "codecs", "config", "inference"},
    "predict": {"api"},
    "gunicorn.conf": {"config", "observability", "runtime"},
}
# They build the service or call all of it.
EXEMPT = {"app", "service", "__main__", "grpc_service.__main__", "cli", "testing", "custom"}
# The socket helpers that both servers need.
GRPC_MAY_IMPORT = "app.server.sockets"
LIBRARIES = {
    "flask": {"rest", "ui"},
    "marshmallow": {"rest"},
    "grpc": {"grpc_service"},
    "gunicorn": {"server", "runtime"},
}
FILES = sorted(
    [*ROOT.glob("app/**/*.py"), *ROOT.glob("grpc_service/**/*.py"), ROOT / "gunicorn.conf.py"]
)


def package_of(name: str) -> str:
    """Return the package of a module of this repository: `rest` for app.rest.routes, `app` for app itself."""
    first, *rest = name.split(".")
    if name == "grpc_service.__main__":  # it builds a service without REST
        return name
    return name if first == "gunicorn" else rest[0] if first == "app" and rest else first


def package_of_file(path: Path) -> str:
    return package_of(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    )


def imports(node: ast.AST) -> Iterator[str]:
    """Return the modules that the code below `node` imports when it runs, wherever in the file."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module, "Expected no relative imports"
            for alias in child.names:
                inner = ROOT.joinpath(*child.module.split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                yield f"{child.module}.{alias.name}" if is_module else child.module
        yield from imports(child)


@cache
def modules_imported(package: str) -> set[str]:
    """Return all modules that the files of a package import."""
    paths = [path for path in FILES if package_of_file(path) == package]
    return {name for path in paths for name in imports(ast.parse(path.read_text(encoding="utf-8")))}


def packages_imported(package: str) -> set[str]:
    """Return the other packages of this repository that a package imports."""
    modules = {
        name for name in modules_imported(package) if name.split(".")[0] in ("app", "grpc_service")
    }
    return {package_of(name) for name in modules} - {package}


PACKAGES = sorted({package_of_file(path) for path in FILES})


def test_every_package_has_a_rule() -> None:
    """Each package and each module directly in app/ is one of the design."""
    assert {*PACKAGES} <= MAY_IMPORT.keys() | EXEMPT


@pytest.mark.parametrize("package", [name for name in PACKAGES if name not in EXEMPT])
def test_packages_import_only_what_is_below_them(package: str) -> None:
    """A package imports itself and the packages that the design allows."""
    allowed = MAY_IMPORT[package] | ({"server"} if package == "grpc_service" else set())
    assert packages_imported(package) <= allowed


def test_grpc_imports_only_the_sockets_of_the_server() -> None:
    """The gRPC server shares nothing else with the REST server."""
    assert {name for name in modules_imported("grpc_service") if package_of(name) == "server"} <= {
        GRPC_MAY_IMPORT
    }


def test_version_imports_nothing() -> None:
    """A build reads the version without any package."""
    assert not modules_imported("version")


def test_there_are_no_cycles() -> None:
    """No package imports itself by way of others."""
    try:
        TopologicalSorter({package: packages_imported(package) for package in PACKAGES}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_has_its_packages(library: str) -> None:
    """Only the packages that adapt a library to the service import it."""
    users = {
        name
        for name in PACKAGES
        if any(module.split(".")[0] == library for module in modules_imported(name))
    }
    assert users - EXEMPT <= LIBRARIES[library]
