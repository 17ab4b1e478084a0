"""The code is not denser than that of Flask, Werkzeug, click, Starlette, httpx, attrs and h11.

The unit is the statement, so the figures do not depend on how a formatter wraps lines. Docstrings,
comments and blank lines do not count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest

from tests.kit.environments import ROOT

# The upper end of what these packages have.
MAX_TOKENS_PER_STATEMENT = 9.6
MAX_TOKENS_OF_MOST = 18  # of 90 % of the statements
MAX_PER_THOUSAND_STATEMENTS = {
    "conditional expressions": 15,
    "assignment expressions": 2,
    "assignments of several values": 2,
    "comprehensions": 18,
    "lambdas": 4,
}
PACKAGES = {
    "app": [*ROOT.glob("app/**/*.py")],
    "grpc_service": [*ROOT.glob("grpc_service/**/*.py")],
}
COUNTED_TOKENS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of the lines of all docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return lines


def statement_sizes(code: str) -> Iterator[int]:
    """Yield the number of tokens of each statement. A header such as `if x:` is a statement."""
    ignored_lines = docstring_lines(ast.parse(code))
    size = 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NEWLINE:
            if size:
                yield size
            size = 0
        elif token.type in COUNTED_TOKENS and token.start[0] not in ignored_lines:
            size += 1


def construct_of(node: ast.AST) -> str | None:
    """Return the name of the construct that a node is, or None if it is not counted."""
    if isinstance(node, ast.IfExp):
        return "conditional expressions"
    if isinstance(node, ast.NamedExpr):
        return "assignment expressions"
    if isinstance(node, COMPREHENSIONS):
        return "comprehensions"
    if isinstance(node, ast.Lambda):
        return "lambdas"
    if isinstance(node, ast.Assign) and unpacks_tuple(node):
        return "assignments of several values"
    return None


def unpacks_tuple(node: ast.Assign) -> bool:
    """Return True for `a, b = x, y`."""
    has_values = isinstance(node.value, ast.Tuple)
    return has_values and any(isinstance(target, ast.Tuple) for target in node.targets)


@pytest.mark.parametrize("package", PACKAGES)
def test_density(package: str) -> None:
    sizes: list[int] = []
    counts = dict.fromkeys(MAX_PER_THOUSAND_STATEMENTS, 0)
    for path in PACKAGES[package]:
        code = path.read_text()
        sizes += statement_sizes(code)
        for node in ast.walk(ast.parse(code)):
            construct = construct_of(node)
            if construct is not None:
                counts[construct] += 1

    assert sum(sizes) / len(sizes) < MAX_TOKENS_PER_STATEMENT + 0.05
    assert sorted(sizes)[int(0.9 * len(sizes))] <= MAX_TOKENS_OF_MOST
    per_thousand = {name: 1000 * count / len(sizes) for name, count in counts.items()}
    for name, figure in per_thousand.items():
        assert figure <= MAX_PER_THOUSAND_STATEMENTS[name], name


def test_constructs_are_counted() -> None:
    code = "a, b = 1, 2\nc = lambda: (d if e else f)\nif g := [h for h in a]: pass\n"

    constructs = [construct_of(node) for node in ast.walk(ast.parse(code))]

    assert sorted(filter(None, constructs)) == sorted(MAX_PER_THOUSAND_STATEMENTS)
    assert list(statement_sizes(code)) == [7, 11, 12]
