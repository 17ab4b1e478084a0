"""deploy/Dockerfile of a new project: build it, and run the image. `make slow` runs these tests."""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np
import pytest

from app.config.settings import Settings
from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from grpc_service.client import infer
from tests.kit.environments import make_project
from tests.kit.processes import free_ports, wait_for

from .images import (
    PYTHON_VERSION,
    Podman,
    build_base_image,
    container,
    require_commands,
    wait_until_ready,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

IMAGE = "localhost/service:1"
DESCRIPTION = 'Predicts "churn", for $5'
FLOWER = {
    "inputs": [
        {"name": "features", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}
    ]
}
# Replaces app/predict.py. load() waits until /tmp/loaded exists. predict() creates /tmp/running,
# and waits until /tmp/enough exists.
WAITING = """
import time
from pathlib import Path
import numpy as np
from app.api import MetadataTensor, ModelMetadata

METADATA = ModelMetadata("waiting", "1", "", [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])])

def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.01)

def load():
    wait_for("/tmp/loaded")

def warm_up(model):
    pass

def predict(model, x: np.ndarray):
    Path("/tmp/running").touch()
    wait_for("/tmp/enough")
    return x
"""
# Prints the modules of the service that have no bytecode.
UNCOMPILED = """
import os, sys
import app.cli.healthcheck, app.service, app.rest.routes
import grpc_service.server, gunicorn.app.wsgiapp, pandas

bytecode = {name: getattr(module, "__cached__", None) for name, module in sys.modules.items()}
print([name for name, file in bytecode.items() if file and not os.path.exists(file)])
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """Return podman with the image from which deploy/Dockerfile starts."""
    require_commands()
    # podman rejects the longer paths of tmp_path_factory.
    with TemporaryDirectory(prefix="images-") as folder:
        engine = Podman(Path(folder))
        build_base_image(engine)
        yield engine


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project whose image has the Python version of the tests."""
    folder = make_project(
        tmp_path_factory.mktemp("project"),
        project_name="Churn",
        description=DESCRIPTION,
        license="MIT",
        python_version=PYTHON_VERSION,
    )
    # Files that must not be in the image.
    (folder / "secrets").mkdir()
    (folder / "secrets" / "keys.txt").write_text("secret")
    (folder / "app" / "__pycache__").mkdir()
    (folder / "app" / "__pycache__" / "stale.pyc").write_text("")
    (folder / "grpc_service" / "stale.binpb").write_text("")
    # With a strict umask, git creates files that only their owner may read.
    (folder / "app" / "predict.py").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def image(podman: Podman, project: Path) -> str:
    """Build the image of the project, and return its name."""
    done = podman.build_project(project, IMAGE)
    assert done.returncode == 0, done.stdout
    return IMAGE


def ports() -> tuple[int, int, dict[str, str]]:
    """Return a free REST port, a free gRPC port, and the variables that set them."""
    http, rpc = free_ports(2)
    return http, rpc, {"HTTP_PORT": str(http), "GRPC_PORT": str(rpc)}


def post(port: int, model: str, request: object) -> Any:
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    with urllib.request.urlopen(url, json.dumps(request).encode(), timeout=180) as response:
        return json.load(response)


def test_image_serves(podman: Podman, image: str) -> None:
    """A read-only, unprivileged container serves both protocols, ignores a proxy and logs JSON."""
    http_port, grpc_port, variables = ports()
    with container(podman, image, http_proxy="http://127.0.0.1:9", **variables) as running:
        wait_until_ready(running)
        assert post(http_port, "iris", FLOWER)["outputs"][0]["data"] == ["setosa"]

        features = RequestInput(
            name="features", datatype="FP32", shape=[1, 4], data=np.ones(4, np.float32)
        )
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            response = infer(channel, "iris", InferenceRequest(inputs=[features]))
        assert response.outputs[0].name == "label"

        for line in running.log().splitlines():
            assert json.loads(line)["level"] in {"DEBUG", "INFO", "WARNING"}, line


def test_container_is_unprivileged(podman: Podman, image: str) -> None:
    """Process 1 is gunicorn. It runs as user 10001, without capabilities, and cannot write to the image's files."""
    _, _, variables = ports()
    with container(podman, image, **variables) as running:
        wait_until_ready(running)

        command_line = running.execute("cat", "/proc/1/cmdline").stdout.split("\0")
        assert command_line[1:3] == ["/venv/bin/gunicorn", "app:create_app()"]

        text = running.execute("cat", "/proc/1/status").stdout
        status = dict(line.split(":\t", 1) for line in text.splitlines())
        assert status["Uid"].split() == ["10001"] * 4
        assert status["Gid"].split() == ["10001"] * 4
        for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
            assert status[f"Cap{kind}"] == "0" * 16
        assert status["NoNewPrivs"] == "1"

        done = running.execute("touch", "/srv/new")
        assert "Read-only file system" in done.stdout


def test_container_starts_and_stops(podman: Podman, image: str, tmp_path: Path) -> None:
    """The container is healthy while it loads the model, and a running request finishes after SIGTERM.

    A mounted file replaces the image's file.
    """
    (tmp_path / "predict.py").write_text(WAITING)
    mount = f"--volume={tmp_path}/predict.py:/srv/app/predict.py:ro"
    http_port, _, variables = ports()
    with (
        container(podman, image, mount, WORKERS="1", **variables) as running,
        ThreadPoolExecutor() as pool,
    ):
        wait_for(lambda: "Loading the model" in running.log())
        wait_for(running.is_healthy)
        assert not running.is_ready()
        running.execute("touch", "/tmp/loaded")
        wait_until_ready(running)

        request = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [3]}]}
        response = pool.submit(post, http_port, "waiting", request)
        wait_for(lambda: running.execute("ls", "/tmp/running").returncode == 0)
        running.send_sigterm()
        wait_for(lambda: "Handling signal: term" in running.log())
        assert running.is_running()
        assert not response.done()

        running.execute("touch", "/tmp/enough")
        assert response.result()["outputs"][0]["data"] == [3]
        wait_for(lambda: not running.is_running())
        assert running.exit_status() == 0


def test_image_contains_only_required_files(podman: Podman, image: str) -> None:
    """The image has the files that .dockerignore lists, readable for every user, and no pip."""
    files = podman.run_once(image, "ls", "/srv").stdout.split()
    assert files == [
        "__pycache__",
        "app",
        "deploy",
        "grpc_service",
        "gunicorn.conf.py",
        "model",
        "protos",
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
    ]
    assert podman.run_once(image, "find", "/srv", "-name", "stale*").stdout == ""
    unreadable = podman.run_once(
        image, "find", "/srv", "/venv", "!", "-type", "l", "!", "-perm", "-o=r"
    )
    assert unreadable.stdout == ""

    for python in ("/venv/bin/python", "/usr/local/bin/python"):
        for module in ("pip", "ensurepip"):
            assert podman.run_once(image, python, "-m", module).returncode != 0


def test_image_contains_bytecode(podman: Podman, image: str) -> None:
    """Every module that the service imports has bytecode, because the service cannot write any."""
    done = podman.run_once(image, "python", "-c", UNCOMPILED)
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_image_configuration(podman: Podman, image: str) -> None:
    """The image has the ports of the settings, an unprivileged user, and labels from the answers."""
    inspected = podman.inspect_image(image)
    assert inspected["Healthcheck"]["Test"] == ["CMD", "python", "-m", "app", "healthcheck"]
    configuration = inspected["Config"]
    settings = Settings()
    assert set(configuration["ExposedPorts"]) == {
        f"{settings.http_port}/tcp",
        f"{settings.grpc_port}/tcp",
    }
    assert configuration["User"] == "10001:10001"
    assert configuration["Cmd"] == ["gunicorn", "app:create_app()"]
    labels = configuration["Labels"]
    assert labels["org.opencontainers.image.title"] == "Churn"
    assert labels["org.opencontainers.image.description"] == DESCRIPTION
    assert labels["org.opencontainers.image.licenses"] == "MIT"


def test_build_arguments(podman: Podman, image: str, project: Path) -> None:
    """APT_PACKAGES are installed without package lists. VERSION, REVISION and SOURCE become labels."""
    values = {"version": "1.2.3", "revision": "abc", "source": "https://example.org/churn"}
    arguments = [f"--build-arg={name.upper()}={value}" for name, value in values.items()]
    done = podman.build_project(
        project, "localhost/service:2", "--build-arg=APT_PACKAGES=tini", *arguments
    )
    assert done.returncode == 0, done.stdout

    assert podman.run_once("localhost/service:2", "tini", "--version").returncode == 0
    assert podman.run_once("localhost/service:2", "ls", "-A", "/var/lib/apt/lists").stdout == ""
    labels = podman.inspect_image("localhost/service:2")["Config"]["Labels"]
    for name, value in values.items():
        assert labels[f"org.opencontainers.image.{name}"] == value


def test_apt_get_runs_only_for_packages(podman: Podman, image: str) -> None:
    """Without APT_PACKAGES, apt-get does not run."""
    assert podman.run_once(image, "tini", "--version").returncode != 0
    files = podman.run_once(image, "find", "/var/cache/apt", "/var/lib/apt/lists", "-type", "f")
    assert files.stdout == ""


def test_unknown_package_stops_build(podman: Podman, image: str, project: Path) -> None:
    """An unknown package in APT_PACKAGES stops the build."""
    done = podman.build_project(
        project, "localhost/failed", "--build-arg=APT_PACKAGES=unknown-package"
    )
    assert done.returncode != 0
    assert "Unable to locate package unknown-package" in done.stdout


def test_stale_lock_stops_build(podman: Podman, image: str, project: Path, tmp_path: Path) -> None:
    """If a package of setup.cfg is missing in the lock, the build fails and suggests `make lock`."""
    stale = shutil.copytree(project, tmp_path / "stale")
    text = (stale / "setup.cfg").read_text()
    changed = text.replace("    flask>", "    sampleproject>=4\n    flask>")
    assert changed != text
    (stale / "setup.cfg").write_text(changed)

    done = podman.build_project(stale, "localhost/failed")
    assert done.returncode != 0
    assert "requires sampleproject, which is not installed" in done.stdout
    assert "does not match setup.cfg and pyproject.toml. Run make lock.\n" in done.stdout


def test_lightgbm_image_loads_model(podman: Podman, tmp_path: Path) -> None:
    """The image for lightgbm has the system's OpenMP library, without which the model does not load."""
    project = make_project(tmp_path, framework="lightgbm", python_version=PYTHON_VERSION)
    done = podman.build_project(project, "localhost/lightgbm")
    assert done.returncode == 0, done.stdout

    checked = podman.run_once("localhost/lightgbm", "python", "-m", "app", "check")
    assert checked.returncode == 0, checked.stdout
