"""Errors of the owner's code in one line: the place and the reason."""

from __future__ import annotations

import inspect
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any

from app.errors import MAX_TEXT, InferenceError, SetupError, shorten

# The note on an exception of predict() or warm_up() that is probably a consequence.
NO_MODEL = "load() returned None"
PREDICT = Path(__file__).with_name("predict.py")
ROOT = PREDICT.parents[1]


def reason(error: BaseException) -> str:
    """Return `app/predict.py, line 12: NameError: name 'foo' is not defined`."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    line = next(filter(None, map(str.strip, message.splitlines())), "")
    text = line if isinstance(error, SetupError | InferenceError) else told(error, line)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "app":
        text += f"; {remedy(error.name or '')}"
    return shorten(": ".join(filter(None, (place(error), text))), MAX_TEXT)


def told(error: BaseException, message: str | None = None) -> str:
    """Return the class and the message of an exception: `ValueError: no such column`."""
    text = f"{type(error).__name__}: {error if message is None else message}".removesuffix(": ")
    return f"{text}; {NO_MODEL}" if NO_MODEL in getattr(error, "__notes__", ()) else text


def note_missing_model(error: BaseException, model: Any) -> None:
    """Add a note to the errors that None raises in place of a model."""
    is_likely = model is None and isinstance(error, TypeError | AttributeError)
    if is_likely and NO_MODEL not in getattr(error, "__notes__", ()):  # the same error can be raised again
        error.add_note(NO_MODEL)


def remedy(module: str) -> str:
    """Return what the owner can do if `module` cannot be imported."""
    name = module.partition(".")[0]
    if name and any((PREDICT.parent / each).exists() for each in (f"{name}.py", name)):
        return f"it is in app/: from app.{module} import ..."
    return (
        "a package that the model needs is to be listed under install_requires in setup.cfg, by the name that pip "
        "knows, as scikit-learn for sklearn"
    )


def place(error: BaseException) -> str | None:
    """Return the file and line in the project where `error` was raised, or None if predict.py did not run.

    For an error of the service itself, that is the line of predict.py that led to it.
    """
    if isinstance(error, SyntaxError) and error.filename and (name := own(error.filename)):
        return f"{name}, line {error.lineno}"
    found, is_ours = None, isinstance(error, SetupError | InferenceError)
    for frame, line in walk_tb(users(error)):
        path = frame.f_code.co_filename
        if path == str(PREDICT) or (own(path) and not is_ours):
            found = f"{own(path)}, line {line}"
    return found


def definition(function: Any) -> str | None:
    """Return the file and line in the project where `function` is defined."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code and (name := own(code.co_filename)):
        return f"{name}, line {code.co_firstlineno}"
    return None


def own(path: str) -> str | None:
    """Return `path` relative to the project's root, or None if it is outside the project."""
    name = Path(path).relative_to(ROOT) if Path(path).is_relative_to(ROOT) else None
    return None if name is None or "site-packages" in name.parts else str(name)


def users(error: BaseException) -> TracebackType | None:
    """Return the traceback from predict.py on."""
    traceback = error.__traceback__
    while traceback and traceback.tb_frame.f_code.co_filename != str(PREDICT):
        traceback = traceback.tb_next
    return traceback


def shown(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """Return the `exc_info` to log with the reason, or None if the reason is enough."""
    traceback = users(error)
    if isinstance(error, SetupError):
        return shown(error.__cause__) if error.__cause__ else None
    if isinstance(error, InferenceError) and not traceback:
        return None
    has_place = isinstance(error, SyntaxError) and error.filename
    return type(error), error, traceback or (None if has_place else error.__traceback__)
