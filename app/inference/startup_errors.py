"""One-line descriptions of exceptions in predict.py and custom.py: location, reason and remedy.

app/predict.py, line 12: NameError: name 'foo' is not defined
app/predict.py, line 3: ModuleNotFoundError: No module named 'catboost'. Add the package ...
"""

import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from traceback import extract_tb, walk_tb
from types import TracebackType
from typing import TypeGuard

from app.protocol.errors import MAX_TEXT, ConfigurationError, InferenceError, shorten

APP = Path(__file__).parents[1]
ROOT = APP.parent
OWNER_FILES = (str(APP / "predict.py"), str(APP / "custom.py"))
# Errors of the service itself, whose messages are complete sentences.
OWN_ERRORS = (ConfigurationError, InferenceError)
# Exceptions that pickle raises if the classes of the saved object are missing, or have changed.
PICKLE_ERRORS = (AttributeError, ImportError, KeyError, TypeError, ValueError)
# Lines of code, and paths of modules, that read a pickle.
PICKLE_READER = re.compile(r"(pickle|joblib|dill|torch)\.load|pickle\.py|/(skops|dill)/")


def describe_error(error: BaseException) -> str:
    """Return one line, such as `app/predict.py, line 12: NameError: name 'foo' is not defined`."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    first_line = message.strip().partition("\n")[0].strip().removesuffix(".")
    text = first_line
    if not isinstance(error, OWN_ERRORS):
        text = format_error(error, first_line)

    location = _find_location(error)
    if _is_missing_package(error):
        if location is None:  # no file of the owner has run
            text += ". Use .venv/bin/python, after make serve."
        else:
            text += f". {import_remedy(error.name or '')}"
    elif isinstance(error, PICKLE_ERRORS):
        text += _pickle_remedy(error)

    if location is not None:
        text = f"{location}: {text}"
    return shorten(text, MAX_TEXT).removesuffix(".")


def format_error(error: BaseException, message: str | None = None) -> str:
    """Return the class and the message of an exception: `ValueError: no such column`."""
    if message is None:
        message = str(error)
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def _is_missing_package(error: BaseException) -> TypeGuard[ModuleNotFoundError]:
    """Return True if an import failed because of a package, not because of one of its modules."""
    if not isinstance(error, ModuleNotFoundError):
        return False
    package = (error.name or "").partition(".")[0]
    return package not in sys.modules


def import_remedy(module: str) -> str:
    """Return advice for a `module` that cannot be imported. Its name can be ""."""
    name = module.partition(".")[0]
    is_in_app = (APP / f"{name}.py").exists() or (APP / name).exists()
    if name and is_in_app:
        return f"The module is in app/. Import it as app.{module}."
    return "Add the package that contains it to install_requires in setup.cfg, and run make serve."


def _pickle_remedy(error: Exception) -> str:
    """Return advice if the file of the model was saved by a script, or with another version of a
    package. Otherwise, return "".
    """
    text = str(error)
    saved_name = re.search(r"(?:attribute|path) '(\S+)'", text)
    if "__main__" in text and saved_name:
        module = "a module of the project, such as app/features.py, and save the model again"
        return f". Define {saved_name[1]} in {module}"

    pin = ". In install_requires (setup.cfg), pin the version that wrote the file"
    # scikit-learn itself fails later. It first warns of another version.
    warnings = str(getattr(sys.modules.get("sklearn.base"), "__warningregistry__", ""))
    version = re.search(r"unpickle estimator \S+ from version (\S+)", warnings)
    if version:
        return f"{pin}: scikit-learn=={version[1]}"

    package = _unpickled_package(error)
    if package is None:
        return ""
    return f"{pin}: {package}==VERSION"


def _unpickled_package(error: Exception) -> str | None:
    """Return the distribution whose objects could not be read from a pickle, or None."""
    frames = extract_tb(error.__traceback__)
    reads_pickle = any(PICKLE_READER.search(f"{frame.filename} {frame.line}") for frame in frames)
    if not reads_pickle:
        return None
    module = re.search(r"module (?:named )?'(\w+)", str(error))
    if module is None:
        module = re.search(r"site-packages/(\w+)", frames[-1].filename)
    if module is None or (ROOT / module[1]).exists():
        return None
    distributions = packages_distributions().get(module[1], [])
    return distributions[0] if distributions else None


def _find_location(error: BaseException) -> str | None:
    """Return the file and line in the project where `error` was raised.

    If the service itself raised it, return the line of the owner's file that called the service.
    Return None if no file of the owner has run.
    """
    if isinstance(error, SyntaxError) and error.filename:
        path = project_path(error.filename)
        if path is not None:
            return f"{path}, line {error.lineno}"

    is_raised_by_service = isinstance(error, OWN_ERRORS)
    innermost = None
    for frame, line in walk_tb(_owner_traceback(error)):
        filename = frame.f_code.co_filename
        if is_raised_by_service and filename not in OWNER_FILES:
            continue
        path = project_path(filename)
        if path is not None:
            innermost = f"{path}, line {line}"
    return innermost


def project_path(path: str) -> str | None:
    """Return `path` relative to the project's root, or None if it is outside the project."""
    is_inside = Path(path).is_relative_to(ROOT) and "site-packages" not in path
    if not is_inside:
        return None
    return str(Path(path).relative_to(ROOT))


def _owner_traceback(error: BaseException) -> TracebackType | None:
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
        if error.__cause__ is None:
            return None
        return exc_info_of(error.__cause__)
    traceback = _owner_traceback(error)
    if traceback is None and isinstance(error, InferenceError | SyntaxError):
        return None
    return type(error), error, traceback or error.__traceback__
