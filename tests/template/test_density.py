"""The code is not denser than that of Flask, Werkzeug, click, Starlette, httpx, attrs and h11.

The unit is the statement, so the figures do not depend on how a formatter wraps lines. Docstrings,
comments and blank lines do not count. In tests and their helpers, data counts as one token: requests
and tables of parameters are long without being hard to read.
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
TEST_PACKAGES = {
    "conformance": [*ROOT.glob("conformance/**/*.py")],
    "tests/kit and the tests of a project": [
        *ROOT.glob("tests/kit/*.py"),
        *ROOT.glob("tests/*.py"),
    ],
}
COUNTED_TOKENS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class DataFolder(ast.NodeTransformer):
    """Replaces each collection that contains only data with a constant, and removes decorators.

    Decorators of tests are tables of parameters, and those of commands are tables of options.
    """

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.List | ast.Set | ast.Dict) and is_data(node):
            return ast.Constant(None)
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
        return self.generic_visit(node)


def is_data(node: ast.AST | None) -> bool:
    """Return True for constants, names, and collections and calls that contain only these."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(is_data(element) for element in node.elts)
    if isinstance(node, ast.Dict):
        return all(is_data(part) for part in [*node.keys, *node.values])
    if isinstance(node, ast.Call):
        keywords = [keyword.value for keyword in node.keywords]
        return is_data(node.func) and all(is_data(part) for part in [*node.args, *keywords])
    if isinstance(node, ast.UnaryOp):
        return is_data(node.operand)
    if isinstance(node, ast.BinOp):
        return is_data(node.left) and is_data(node.right)
    return isinstance(node, ast.Constant | ast.Name | ast.Attribute)


def without_data(code: str) -> str:
    return ast.unparse(DataFolder().visit(ast.parse(code)))


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
    check_density([path.read_text() for path in PACKAGES[package]])


@pytest.mark.parametrize("package", TEST_PACKAGES)
def test_density_of_tests(package: str) -> None:
    check_density([without_data(path.read_text()) for path in TEST_PACKAGES[package]])


def check_density(modules: list[str]) -> None:
    sizes: list[int] = []
    counts = dict.fromkeys(MAX_PER_THOUSAND_STATEMENTS, 0)
    for code in modules:
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


def test_data_is_one_token() -> None:
    code = 'body = {"inputs": [tensor("x", [-1, 2**63], [])]}\nbody = [make(i) for i in [3, 4]]\n'

    assert without_data(code) == "body = None\nbody = [make(i) for i in None]"


def test_constructs_are_counted() -> None:
    code = "a, b = 1, 2\nc = lambda: (d if e else f)\nif g := [h for h in a]: pass\n"

    constructs = [construct_of(node) for node in ast.walk(ast.parse(code))]

    assert sorted(filter(None, constructs)) == sorted(MAX_PER_THOUSAND_STATEMENTS)
    assert list(statement_sizes(code)) == [7, 11, 12]
