"""Limits that keep the service readable: the sizes of files and functions, and exceptions from the type check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .environments import ROOT
from .test_line_limits import sources

FILE_LINES = 300
# Directories of tests and measurements. Their files have the same limit as those of the service.
TEST_DIRECTORIES = ("tests", "conformance", "chaos", "benchmarks")
FUNCTION_LINES = 40
TYPE_IGNORES = 20


def read_sources() -> dict[Path, str]:
    return {path: (ROOT / path).read_text() for path in sources(".py")}


def find_functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def count_lines() -> Iterator[tuple[Path, int]]:
    yield from ((path, text.count("\n")) for path, text in read_sources().items())
    for directory in TEST_DIRECTORIES:
        yield from ((path.relative_to(ROOT), path.read_text().count("\n")) for path in (ROOT / directory).rglob("*.py"))


def test_files_are_short() -> None:
    """A file of the service, its tests, the conformance cases, chaos or benchmarks has at most 300 lines."""
    assert {path: lines for path, lines in count_lines() if lines > FILE_LINES} == {}


def test_the_composition_is_short() -> None:
    """app/__init__.py shows how the application is composed in at most 60 lines."""
    assert (ROOT / "app/__init__.py").read_text().count("\n") <= 60


def test_functions_are_short() -> None:
    """A function of the service has at most 40 lines. ruff limits branches and parameters."""
    long = {
        f"{path}:{function.lineno} {function.name}()": lines
        for path, text in read_sources().items()
        for function in find_functions(text)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES
    }
    assert long == {}


def test_type_check_exceptions_are_limited() -> None:
    """Few lines disable the type check, each with an error code, and no cast to Any bypasses it."""
    ignores = [found for text in read_sources().values() for found in re.findall(r"# type: ignore(\[.+\])?", text)]
    assert 0 < len(ignores) <= TYPE_IGNORES
    assert "" not in ignores
    assert not [path for path, text in read_sources().items() if re.search(r"cast\((typing\.)?Any,", text)]
