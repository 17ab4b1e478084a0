"""Startup errors of a pickle that a script, or another version of a package, wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.projects import command, edit, make_project

LOAD = """    import pickle
    with open(read_settings().model_dir / "shape.pickle", "rb") as file:
        shape = pickle.load(file)
    return shape.term
"""
SHAPE = "class Shape:\n    def __init__(self):\n        self.term = 0.5\n"
RENAMED = SHAPE.replace("Shape", "Square")
REJECTING = (
    f"{SHAPE}    def __setstate__(self, state):\n        raise ValueError('Unknown side.')\n"
)
INCOMPATIBLE = f"{SHAPE}    def __setstate__(self, state):\n        self.term = state['side']\n"
# As scikit-learn does, this version logs a warning and continues. The error follows later.
WARNING = f"""import warnings
class InconsistentVersionWarning(UserWarning):
    pass
{SHAPE}    def __setstate__(self, state):
        text = "Trying to unpickle estimator Shape from version 1.5.2 when using version 1.7.0. This might"
        warnings.warn(InconsistentVersionWarning(text))
"""


@pytest.mark.parametrize(
    ("package", "old", "new", "error", "requirement"),
    [
        ("shapes", "base", RENAMED, "line 21: AttributeError: ", "shapes==VERSION"),
        (
            "shapes",
            "old",
            SHAPE,
            "line 21: ModuleNotFoundError: No module named 'shapes.old'",
            "shapes==VERSION",
        ),
        ("shapes", "base", INCOMPATIBLE, "line 21: KeyError: 'side'", "shapes==VERSION"),
        ("shapes", "base", REJECTING, "line 21: ValueError: Unknown side. In", "shapes==VERSION"),
        (
            "sklearn",
            "base",
            WARNING,
            "line 22: AttributeError: 'Shape' object has no attribute",
            "scikit-learn==1.5.2",
        ),
    ],
    ids=["class", "module", "state", "period", "warning"],
)
def test_pickle_of_another_version(
    tmp_path: Path, package: str, old: str, new: str, error: str, requirement: str
) -> None:
    """If another version of a package wrote the pickle, the error contains the requirement to pin."""
    install(tmp_path / "old", package, old, SHAPE)
    folder = install(tmp_path / "site-packages", package, "base", new)
    done = check(tmp_path, f"from {package}.{old} import Shape", tmp_path / "old", folder)
    assert done.startswith(f"load(): app/predict.py, {error}")
    assert done.endswith(
        f". In install_requires (setup.cfg), pin the version that wrote the file: {requirement}"
    )


def test_pickle_of_script(tmp_path: Path) -> None:
    """If the script that wrote the pickle defines a class, the error asks for a module of the project."""
    done = check(tmp_path, SHAPE)
    assert done.startswith("load(): app/predict.py, line 21: AttributeError: ")
    assert done.endswith(
        ". Define Shape in a module of the project, such as app/features.py, and save the model again"
    )


def test_no_advice_for_missing_file(tmp_path: Path) -> None:
    """If the file does not exist, the error has no advice about versions."""
    error = check(tmp_path, SHAPE, load="    import pickle\n    pickle.load(open('lost', 'rb'))\n")
    assert error.endswith("line 20: FileNotFoundError: [Errno 2] No such file or directory: 'lost'")


def test_no_advice_for_error_in_joblib(tmp_path: Path) -> None:
    """If joblib runs a function and does not read a file, the error has no advice about versions."""
    call = "Parallel()([delayed(np.linalg.inv)(np.ones((2, 2)))])"
    error = check(tmp_path, SHAPE, load=f"    from joblib import Parallel, delayed\n    {call}\n")
    assert error.endswith("line 20: LinAlgError: Singular matrix")


def check(
    folder: Path, script: str, old: Path | None = None, new: Path | None = None, load: str = LOAD
) -> str:
    """Write a pickle of the script's Shape with packages in `old`. Return the error of `check` with those in `new`."""
    project = make_project(folder / "project")
    dump = f"{script}\nimport pickle, sys\npickle.dump(Shape(), open(sys.argv[1], 'wb'))"
    path = {"PYTHONPATH": str(old or "")}
    subprocess.run(
        [sys.executable, "-c", dump, project / "model/shape.pickle"], env=path, check=True
    )
    edit(project, '    return float((read_settings().model_dir / "term.txt").read_text())\n', load)
    done = command("check", folder=project, PYTHONPATH=new or "")
    return done.stderr.splitlines()[-1].removeprefix("Error: ")


def install(folder: Path, package: str, module: str, text: str) -> Path:
    """Write a package of one module with its metadata into `folder`, as pip does. Return `folder`."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").touch()
    (folder / package / f"{module}.py").write_text(text)
    (folder / f"{package}-2.0.dist-info").mkdir()
    (folder / f"{package}-2.0.dist-info/METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n"
    )
    (folder / f"{package}-2.0.dist-info/top_level.txt").write_text(f"{package}\n")
    return folder
