"""Objects of the service have one role: few attributes, which only their own module assigns."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.environments import ROOT

MAX_ATTRIBUTES = 10
# Data with public members, which their users create and change.
DATA = {
    "Settings",
    "Metrics",
    "Tensor",
    "RequestInput",
    "RequestOutput",
    "ResponseOutput",
    "Message",
    "InferenceRequest",
    "InferenceResponse",
    "MetadataTensor",
    "ModelMetadata",
}
FILES = sorted([*ROOT.glob("app/**/*.py"), *ROOT.glob("grpc_service/**/*.py")])


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Return the attributes that an assignment changes."""
    if isinstance(node, ast.Assign):
        assigned = node.targets
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        assigned = [node.target]
    else:
        return
    for target in assigned:
        for child in ast.walk(target):
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                yield child


def is_self(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in DATA:
                yield path, node


def own_attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes that the methods of a class assign through `self`."""
    return {target.attr for child in ast.walk(node) for target in targets(child) if is_self(target)}


@pytest.mark.parametrize(
    "node", [pytest.param(node, id=f"{path.stem}.{node.name}") for path, node in classes()]
)
def test_class_has_few_attributes(node: ast.ClassDef) -> None:
    """A class with more attributes has more than one role."""
    assert len(own_attributes(node)) <= MAX_ATTRIBUTES


def test_only_the_own_module_assigns_attributes() -> None:
    """An attribute of an object changes in the module of its class, so that a reader finds all changes there."""
    modules = defaultdict(set)
    for path, node in classes():
        for name in own_attributes(node):
            modules[name].add(path)

    foreign = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for target in targets(node):
                is_foreign = target.attr in modules and path not in modules[target.attr]
                if is_foreign and not is_self(target):
                    foreign.append(f"{path.relative_to(ROOT)}: {ast.unparse(target)}")
    assert foreign == []
