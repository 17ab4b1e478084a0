"""Why the service cannot start, in a line: where in the user's code, and what went wrong."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

from app.errors import MAX_TEXT, InferenceError, SetupError, shorten

# The note on an exception of predict() that happens because load() returned None.
NO_MODEL = "load() returned None"
PREDICT = Path(__file__).with_name("predict.py")
ROOT = PREDICT.parents[1]


def reason(error: BaseException) -> str:
    """`app/predict.py, line 12: NameError: name 'foo' is not defined`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if isinstance(error, SyntaxError):
        text = error.msg
    if not isinstance(error, SetupError | InferenceError):
        text = (f"{type(error).__name__}: {text}" if text else type(error).__name__) + blame(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "app":
        text += f"; {remedy(error.name or '')}"
    return shorten(": ".join(filter(None, (place(error), text))), MAX_TEXT)


def told(error: BaseException) -> str:
    """Return class and text of an exception: "ValueError: no such column"."""
    return f"{type(error).__name__}: {error}".removesuffix(": ") + blame(error)


def blame(error: BaseException) -> str:
    """Return a hint for the error text if the model is None, which no model's code expects."""
    return f"; {NO_MODEL}" if NO_MODEL in getattr(error, "__notes__", ()) else ""


def remedy(module: str) -> str:
    """What helps where `module` cannot be imported."""
    name = module.partition(".")[0]
    if name and any((PREDICT.parent / each).exists() for each in (f"{name}.py", name)):
        return f"it is in app/: from app.{module} import ..."
    return (
        "a package that the model needs is to be listed under install_requires in setup.cfg, by the name that pip "
        "knows, as scikit-learn for sklearn"
    )


def place(error: BaseException) -> str | None:
    """The file and line of the user's that `error` came from; None where predict.py did not run.

    What the service itself raises is told of the line in predict.py that led to it.
    """
    if isinstance(error, SyntaxError) and error.filename and (name := own(Path(error.filename))):
        return f"{name}, line {error.lineno}"
    found, told = None, isinstance(error, SetupError | InferenceError)
    traceback = users(error)
    while traceback:
        path = Path(traceback.tb_frame.f_code.co_filename)
        if path == PREDICT or (own(path) and not told):
            found = f"{own(path)}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def own(path: Path) -> str | None:
    """`path` from the project's root; None for what is not the project's."""
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT)
    return None if "site-packages" in name.parts else str(name)


def users(error: BaseException) -> TracebackType | None:
    """The traceback from predict.py on, without how the service came to it."""
    traceback = error.__traceback__
    while traceback and Path(traceback.tb_frame.f_code.co_filename) != PREDICT:
        traceback = traceback.tb_next
    return traceback


def shown(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """What a log shows of `error` beside its reason, as `exc_info`; None of what the service itself told."""
    traceback = users(error)
    if isinstance(error, SetupError):
        return shown(error.__cause__) if error.__cause__ else None
    if isinstance(error, InferenceError) and not traceback:
        return None
    alone = isinstance(error, SyntaxError) and error.filename
    return type(error), error, traceback or (None if alone else error.__traceback__)


@cache
def has_no_return(function: Any) -> bool:
    """Whether `function`, by def, returns no value anywhere; False where its source is not to be had."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    is_def = any(isinstance(node, ast.FunctionDef) for node in tree.body)
    return is_def and not any(isinstance(node, ast.Return) and node.value for node in ast.walk(tree))


def definition(function: Any) -> str | None:
    """The file and line of the user's that `function` is defined in."""
    code: CodeType | None = getattr(inspect.unwrap(function), "__code__", None)
    if code and (name := own(Path(code.co_filename))):
        return f"{name}, line {code.co_firstlineno}"
    return None
