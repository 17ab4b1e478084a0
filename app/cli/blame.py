"""Where in app/predict.py an error comes from, and what it is, in one line."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from app.config import ROOT
from app.errors import InferenceError, ModelError, SetupError

PREDICT = ROOT / "app/predict.py"
NAMES = re.compile(r"\b(METADATA|EXAMPLE|predict|load|warm_up)\b")


def blame(error: BaseException) -> str:
    """`app/predict.py, line 12: KeyError: 'weights'`: the last line there that ran, or else what it is about."""
    cause = error.__cause__ if isinstance(error, ModelError | SetupError) and error.__cause__ else error
    is_told = isinstance(error, SetupError) or isinstance(cause, InferenceError)
    text = str(error) if is_told else f"{type(cause).__name__}: {cause}"
    if text.startswith("app/predict.py,"):
        return text
    line = last_line(cause) or line_of(text)
    if line is None:
        return text
    return f"app/predict.py, line {line}: {text.removeprefix('app/predict.py: ')}"


def last_line(error: BaseException) -> int | None:
    """The line of predict.py that the error went through last."""
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if Path(each.filename) == PREDICT]
    return lines[-1] if lines else None


def line_of(text: str) -> int | None:
    """The line where predict.py defines what `text` is about first."""
    found = NAMES.search(text)
    return dict(definitions()).get(found[1]) if found else None


def definitions() -> Iterator[tuple[str, int]]:
    for node in ast.parse(PREDICT.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Assign):
            yield from ((each.id, node.lineno) for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.lineno
