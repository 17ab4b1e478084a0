"""The project of each framework passes its own tests, and the calls in its README work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.kit.environments import LOCAL, ROOT, give_messages, make_clients, make_project
from tests.kit.processes import Running, free_ports, gunicorn

from .baking import setup_without_docs
from .dockerfiles import lint_findings

CONTEXT = json.loads((ROOT / "cookiecutter.json").read_text())
FRAMEWORKS = CONTEXT["framework"]
# The platform of each example's model, <project>_<format>, and a file in that format. `load()` reads the file.
PLATFORMS = {
    "numpy": ("numpy_npz", "iris.npz"),
    "scikit-learn": ("sklearn_joblib", "penguins.joblib"),
    "xgboost": ("xgboost_ubj", "wine.ubj"),
    "lightgbm": ("lightgbm_text", "visitors.txt"),
    "onnx": ("onnx_onnxv1", "digits.onnx"),
    "pytorch": ("pytorch_state_dict", "passengers.pt"),
    "transformers": ("transformers_safetensors", "model.safetensors"),
    "mlflow": ("mlflow_pyfunc", "MLmodel"),
}
# The import name of a framework, if it differs.
MODULES = {"scikit-learn": "sklearn", "onnx": "onnxruntime", "pytorch": "torch"}
MODEL = "my-model.1"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return project(framework), which generates a project for it once."""
    projects: dict[str, Path] = {}

    def make(framework: str) -> Path:
        if framework not in projects:
            answers = {"framework": framework, "project_slug": "made", "model_name": MODEL}
            projects[framework] = give_messages(
                make_project(tmp_path_factory.mktemp("projects"), **answers)
            )
        return projects[framework]

    return make


def in_gate(*names: str) -> list[Any]:
    """Return all frameworks as parameters. The gate runs those that are named, `make slow` the others."""
    return [
        name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in FRAMEWORKS
    ]


# The frameworks without and with packages of their own.
@pytest.fixture(scope="module", params=in_gate("numpy", "scikit-learn"))
def framework(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def service(project: Callable[[str], Path], framework: str) -> Iterator[Running]:
    """Start the project of the framework with one worker."""
    skip_without(framework)
    with gunicorn(project(framework), WORKERS=1, PYTHONPATH=project(framework)) as running:
        yield running


def skip_without(framework: str) -> None:
    if not find_spec(MODULES.get(framework, framework)):
        pytest.skip(f"{framework} is not installed here: `make matrix` tries it")


def chapter(project: Path) -> str:
    return (project / "README.md").read_text().split("\n## Calls\n")[1].split("\n## ")[0]


def calls_of(project: Path, service: Running) -> str:
    """Return the calls in the README, with the addresses of the service."""
    return (
        chapter(project)
        .replace("127.0.0.1:8080", service.http_address)
        .replace("127.0.0.1:8081", service.grpc_address)
    )


def call(project: Path, service: Running) -> Any:
    """Run the first call in the README, which uses curl, and return the response."""
    command, *_ = commands(calls_of(project, service))
    return json.loads(
        subprocess.run(["bash", "-c", command], cwd=project, capture_output=True, check=True).stdout
    )


def commands(text: str) -> list[str]:
    """Return the indented commands, each with its continuation lines."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    blocks = re.findall(r"(?:^ {4}.*\n)+", prose, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in blocks]


def grpcurl(command: str, folder: Path) -> Any:
    """Run a grpcurl command, and return the response."""
    path = f"{make_clients().parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, check=True
    )
    return json.loads(done.stdout)


def test_each_framework_has_an_example() -> None:
    """The choices of the framework question are the directories of examples/."""
    assert {path.name for path in (ROOT / "examples").iterdir()} == set(FRAMEWORKS)


def test_platform(framework: str) -> None:
    """R6: the platform of each example follows the specification, <project>_<format>, for the file that it loads."""
    platform, file = PLATFORMS[framework]
    folder = ROOT if framework == FRAMEWORKS[0] else ROOT / "examples" / framework
    source = (ROOT / "app" if folder == ROOT else folder) / "predict.py"
    assert f'platform="{platform}",' in source.read_text()
    assert (folder / "model" / file).is_file()


def test_project_contains_only_its_framework(
    project: Callable[[str], Path], framework: str
) -> None:
    """A project contains the model, packages and example of its framework, and nothing of other frameworks."""
    folder, example = project(framework), ROOT / "examples" / framework
    assert [path.name for path in (folder / "examples").iterdir()] == [framework]
    assert "<!--" not in (folder / "README.md").read_text()
    assert MODEL in chapter(folder)
    kept = {path.name for path in (folder / "examples" / framework).iterdir()}
    assert "train.py" in kept
    moved = {
        "predict.py",
        "signature.py",
        "test_predict.py",
        "requirements.txt",
        "calls.md",
        "lock.txt",
        "model",
    }
    assert not kept & moved
    assert (folder / "app/signature.py").exists() == (framework == "mlflow")
    setup = (folder / "setup.cfg").read_text()
    if framework == FRAMEWORKS[0]:
        template = setup_without_docs().replace("open-inference-service", "made")
        assert setup == re.sub(r"^(batch|plots) =\n(    .*\n)+", "", template, flags=re.MULTILINE)
        return
    assert {path.name for path in (folder / "model").iterdir()} == {
        path.name for path in (example / "model").iterdir()
    }
    assert (folder / "tests/test_predict.py").read_text() == (
        example / "test_predict.py"
    ).read_text()
    assert (folder / "deploy/requirements.txt").read_text() == (example / "lock.txt").read_text()
    needed = [
        line
        for line in (example / "requirements.txt").read_text().splitlines()
        if line and line[0] != "#"
    ]
    assert needed
    assert all(f"    {line}\n" in setup for line in needed)


@pytest.mark.parametrize("name", in_gate("numpy", "lightgbm"))
def test_image_installs_openmp_for_lightgbm(project: Callable[[str], Path], name: str) -> None:
    """Only the image for lightgbm installs OpenMP, because the other wheels include it."""
    dockerfile = project(name) / "deploy/Dockerfile"
    assert ("libgomp1" in dockerfile.read_text()) == (name == "lightgbm")
    assert lint_findings(dockerfile) == ""


def test_project_tests_pass(project: Callable[[str], Path], framework: str) -> None:
    """The project's own tests of the model and the service pass."""
    skip_without(framework)
    folder = project(framework)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_missing_model_file(project: Callable[[str], Path], framework: str, tmp_path: Path) -> None:
    """If the model file is missing, startup fails with one line that names the file and MODEL_DIR."""
    skip_without(framework)
    folder = project(framework)
    http, grpc = map(str, free_ports(2))
    ports = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "WORKERS": "1",
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, "-m", "gunicorn", "app:create_app()"]
    env = {**os.environ, **ports, "MODEL_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=180)
    *_, last = done.stderr.splitlines()
    missing = re.search(
        rf"Cannot start: .*app/predict.py, line \d+: {tmp_path}/(\S+): file not found.* MODEL_DIR",
        last,
    )
    assert missing, done.stderr
    assert (folder / "model" / missing[1]).is_file()
    assert "Traceback" not in done.stderr


def test_readme_calls(
    project: Callable[[str], Path], framework: str, service: Running, tmp_path: Path
) -> None:
    """The calls with curl, tritonclient and grpcurl in the README work unchanged."""
    folder = project(framework)
    python = make_clients()
    response = call(folder, service)
    assert response["model_name"] == MODEL, response
    names = {output["name"] for output in response["outputs"]}
    text = calls_of(folder, service)
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "call.py").write_text(block)
    assert (
        subprocess.run(
            [python, tmp_path / "call.py"], cwd=folder, env={**os.environ, **LOCAL}
        ).returncode
        == 0
    )
    for command in commands(text)[1:]:
        assert {output["name"] for output in grpcurl(command, folder)["outputs"]} == names
