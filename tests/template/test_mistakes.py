"""Common mistakes in predict.py: a new project reports the problem and the remedy in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.environments import give_messages, make_project
from tests.kit.processes import free_ports, gunicorn, wait_for

PREDICT = "app/predict.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project."""
    return give_messages(make_project(tmp_path_factory.mktemp("made")))


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """Return a copy of the project that a test may change."""
    return shutil.copytree(made, tmp_path / "made")


def change(project: Path, old: str, new: str) -> None:
    text = (project / PREDICT).read_text()
    assert old in text
    (project / PREDICT).write_text(text.replace(old, new, 1))


def start(
    project: Path, http_port: int, grpc_port: int, *command: str
) -> subprocess.CompletedProcess[str]:
    """Run a command that must fail to start, by default gunicorn."""
    settings = {
        "HOST": "127.0.0.1",
        "WORKERS": "2",
        "HTTP_PORT": str(http_port),
        "GRPC_PORT": str(grpc_port),
    }
    env = {**os.environ, **settings, "PYTHONPATH": str(project)}
    command = command or ("gunicorn", "app:create_app()")
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "import numpy as np",
            "import numpy as np\nimport xgbost",
            "app/predict.py, line 4: ModuleNotFoundError: No module named 'xgbost'. Add the package that contains it",
        ),
        (
            "import numpy as np",
            "from app.protocol.messages import Tensors",
            "line 3: ImportError: cannot import name 'Tensors'",
        ),
        ("def load():", "def load(:", "app/predict.py, line 22: SyntaxError: "),
        (
            "METADATA =",
            "METADATA = np.nothing\nMETADATA =",
            "line 8: AttributeError: module 'numpy' has no attribute",
        ),
        (
            "METADATA =",
            "rows = iris\nMETADATA =",
            "Cannot start: app/predict.py, line 8: NameError: name 'iris' is not",
        ),
        (
            "exponentials / ",
            "exponential / ",
            "Warm-up failed: app/predict.py, line 36: NameError: name 'exponential'",
        ),
        (
            "    with np",
            "    import xgbost\n    with np",
            "load() failed: app/predict.py, line 24: ModuleNotFoundError: No module named 'xgbost'. Add the",
        ),
        (
            "    with np",
            "    with no",
            "load() failed: app/predict.py, line 24: NameError: name 'no' is not defined",
        ),
        (
            "features: np.ndarray",
            "features: set",
            'app/predict.py, line 28: predict(), parameter "features": invalid annotation',
        ),
        (
            "features: np.ndarray",
            'features: "Frame"',
            "line 28: predict(): cannot resolve an annotation: name 'Frame'",
        ),
        ("def load()", "def lod()", "missing load"),
        ("def predict(", "def predikt(", "missing predict"),
        (
            "features: np.ndarray",
            "feature: np.ndarray",
            'Expected "features" after the model, as METADATA declares, got "feature"',
        ),
        ('"FP32", [-1, 4]', '"FLOAT32", [-1, 4]', "invalid datatype. Expected one of BOOL, UINT8"),
        ('"FP32", [-1, 4]', '"FP32", [None, 4]', "got None. Use -1 for a variable dimension"),
        (
            '"features", "FP32", [-1, 4]',
            '"features", "FP32", [-1, 4], content_type="image"',
            "invalid content_type. Expected one of",
        ),
        (
            '"iris.npz"',
            '"irises.npz"',
            "irises.npz: file not found. Put the model there or set MODEL_DIR",
        ),
        (
            ', "probabilities": probabilities}',
            "}",
            'Output "probabilities": not returned by predict(), which returned "label"',
        ),
        (
            '"probabilities": probabilities',
            '"probability": probabilities',
            "returned by predict(), but not declared in METADATA",
        ),
        (
            '"probabilities": probabilities',
            '"probabilities": probabilities.astype(str)',
            "invalid datatype. Expected FP32, got strings",
        ),
        (
            '"probabilities": probabilities',
            '"probabilities": probabilities[:, :2]',
            "invalid shape. Expected [-1,3], got [1,2]",
        ),
        ('return {"label"', '_ = {"label"', "predict() returned None"),
    ],
)
def test_startup_reports_mistake(project: Path, old: str, new: str, expected: str) -> None:
    """Startup fails with one line about the mistake and at most one traceback, without gunicorn's frames."""
    change(project, old, new)
    done = start(project, *free_ports(2))
    assert done.returncode != 0
    *_, last = done.stderr.splitlines()
    assert "Cannot start: " in last
    assert expected in last
    assert done.stderr.count("Traceback") <= 1
    assert "site-packages/gunicorn" not in done.stderr


@pytest.mark.parametrize("beside", ["features.py", "features/__init__.py"])
def test_import_of_file_in_app(project: Path, beside: str) -> None:
    """For an import of a file in app/ as a top-level module, the error suggests the correct import."""
    file = project / "app" / beside
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    change(project, "import numpy as np", "import numpy as np\nfrom features import scaled")
    last = start(project, *free_ports(2)).stderr.splitlines()[-1]
    assert last.endswith(
        "No module named 'features'. The module is in app/. Import it as app.features"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "METADATA =",
            "iris\nMETADATA =",
            "Cannot start: app/predict.py, line 8: NameError: name 'iris' is not defined",
        ),
        (
            "with np",
            "with no",
            "load() failed: app/predict.py, line 24: NameError: name 'no' is not defined",
        ),
    ],
)
def test_grpc_service_reports_mistake(project: Path, old: str, new: str, expected: str) -> None:
    """`python -m grpc_service` exits with the same error."""
    change(project, old, new)
    done = start(project, *free_ports(2), "grpc_service")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].endswith(expected)


def test_failed_first_call_is_reported(project: Path) -> None:
    """Without EXAMPLE, an exception of predict() is logged at startup and returned to the client."""
    change(project, "EXAMPLE = ", "SAMPLE = ")
    change(project, "exponentials / ", "exponential / ")
    expected = "NameError: name 'exponential' is not defined"
    with gunicorn(project, WORKERS=1, PYTHONPATH=project) as service:
        wait_for(lambda: expected in service.log())
        wait_for(lambda: "Try it:" in service.log())
        (call,) = (
            line.strip() for line in service.log().splitlines() if line.strip().startswith("curl ")
        )
        done = subprocess.run(["bash", "-c", f"{call} --silent"], capture_output=True, text=True)
        assert expected in done.stdout
