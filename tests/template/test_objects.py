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
# Attributes of data, which are not those of the class in this module that has the same name.
DATA_ATTRIBUTES = {"name", "parameters", "remedy"}
# Objects of other packages. Each module explains why it changes them.
OTHERS = {
    "app/server/arbiter.py: server.shared",  # gunicorn's master, which the module extends
    "grpc_service/pool.py: state.request",  # grpcio's state of a call, which run_handler() replaces
    "grpc_service/server.py: request.service",  # a message of the health service
}
FILES = sorted([*ROOT.glob("app/**/*.py"), *ROOT.glob("grpc_service/**/*.py")])


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Return the attributes that an assignment changes."""
    if isinstance(node, ast.Assign):
        assigned = node.targets
    elif isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.AnnAssign) and node.value is not None
    ):
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
                if is_self(target) or target.attr in DATA_ATTRIBUTES:
                    continue
                place = f"{path.relative_to(ROOT)}: {ast.unparse(target)}"
                is_own = target.attr not in modules or path in modules[target.attr]
                if not is_own and place not in OTHERS:
                    foreign.append(place)
    assert foreign == []
