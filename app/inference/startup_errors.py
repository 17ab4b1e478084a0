"""One-line descriptions of exceptions in predict.py and custom.py: location and reason."""

import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from traceback import extract_tb, walk_tb
from types import TracebackType

from app.protocol.errors import MAX_TEXT, ConfigurationError, InferenceError, shorten

APP = Path(__file__).parents[1]
ROOT = APP.parent
OWNER_FILES = (str(APP / "predict.py"), str(APP / "custom.py"))
READERS = re.compile(
    r"(pickle|joblib|dill|torch)\.load|pickle\.py|/(skops|dill)/"
)  # lines and files


def describe_error(error: BaseException) -> str:
    """Return one line, such as `app/predict.py, line 12: NameError: name 'foo' is not defined`."""
    location = find_location(
        error
    )  # None if neither has run, for example in a Python without the packages
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    line = message.strip().partition("\n")[0].strip().removesuffix(".")
    text = (
        line
        if isinstance(error, ConfigurationError | InferenceError)
        else format_error(error, line)
    )
    if (
        isinstance(error, ModuleNotFoundError)
        and (error.name or "").partition(".")[0] not in sys.modules
    ):
        text += f". {import_remedy(error.name or '') if location else 'Use .venv/bin/python, after make serve.'}"
    elif isinstance(error, AttributeError | ImportError | KeyError | TypeError | ValueError):
        text += pickle_remedy(error)
    return shorten(": ".join(filter(None, (location, text))), MAX_TEXT).removesuffix(".")


def format_error(error: BaseException, message: str | None = None) -> str:
    """Return the class and the message of an exception: `ValueError: no such column`."""
    return f"{type(error).__name__}: {error if message is None else message}".removesuffix(": ")


def import_remedy(module: str) -> str:
    """Return advice for a `module` that cannot be imported."""
    name = module.partition(".")[0]
    if name and any((APP / each).exists() for each in (f"{name}.py", name)):
        return f"The module is in app/. Import it as app.{module}."
    return "Add the package that contains it to install_requires in setup.cfg, and run make serve."


def pickle_remedy(error: Exception) -> str:
    """Return advice if a script, or another version of a package, wrote the pickle that causes the error, or ""."""
    text, steps = str(error), extract_tb(error.__traceback__)
    if "__main__" in text and (found := re.search(r"(?:attribute|path) '(\S+)'", text)):
        return f". Define {found[1]} in a module of the project, such as app/features.py, and save the model again"
    pin = ". In install_requires (setup.cfg), pin the version that wrote the file"
    warnings = str(getattr(sys.modules.get("sklearn.base"), "__warningregistry__", ""))
    if version := re.search(
        r"unpickle estimator \S+ from version (\S+)", warnings
    ):  # scikit-learn fails later
        return f"{pin}: scikit-learn=={version[1]}"
    is_read = any(READERS.search(f"{step.filename} {step.line}") for step in steps)
    found = re.search(r"module (?:named )?'(\w+)", text) or re.search(
        r"site-packages/(\w+)", steps[-1].filename
    )
    names = (
        packages_distributions().get(found[1], [])
        if is_read and found and not (ROOT / found[1]).exists()
        else []
    )
    return f"{pin}: {names[0]}==VERSION" if names else ""


def find_location(error: BaseException) -> str | None:
    """Return the file and line in the project where `error` was raised, or None if neither owner file ran.

    If the service itself raised it, return the line of the owner file that called the service.
    """
    if isinstance(error, SyntaxError) and error.filename and (name := project_path(error.filename)):
        return f"{name}, line {error.lineno}"
    found, is_ours = None, isinstance(error, ConfigurationError | InferenceError)
    for frame, line in walk_tb(owner_traceback(error)):
        path = frame.f_code.co_filename
        if path in OWNER_FILES or (project_path(path) and not is_ours):
            found = f"{project_path(path)}, line {line}"
    return found


def project_path(path: str) -> str | None:
    """Return `path` relative to the project's root, or None if it is outside the project."""
    is_inside = Path(path).is_relative_to(ROOT) and "site-packages" not in path
    return str(Path(path).relative_to(ROOT)) if is_inside else None


def owner_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame of predict.py or custom.py on, or None."""
    traceback = error.__traceback__
    while traceback and traceback.tb_frame.f_code.co_filename not in OWNER_FILES:
        traceback = traceback.tb_next
    return traceback


def exc_info_of(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """Return the `exc_info` for the log, or None if the one-line reason is sufficient."""
    if isinstance(error, ConfigurationError):
        return exc_info_of(error.__cause__) if error.__cause__ else None
    traceback = owner_traceback(error)
    if traceback is None and isinstance(error, InferenceError | SyntaxError):
        return None
    return type(error), error, traceback or error.__traceback__
