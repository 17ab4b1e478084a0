"""deploy/Dockerfile: build its stages and run the result as a container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from app.config.settings import Settings
from app.protocol.types import InferenceRequest, RequestInput
from grpc_service.client import infer
from tests.kit.processes import free_ports, wait_for

from .container import Container, Stage, built, lint_findings, read_dockerfile
from .helm import ROOT, missing
from .manifests import DEPLOY, Render

DOCKERFILE = DEPLOY / "Dockerfile"
FLOWER = {
    "inputs": [
        {"name": "features", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}
    ]
}
# Replaces app/predict.py. predict() creates /tmp/running, then waits until /tmp/enough exists.
WAITING = """
import time
from pathlib import Path
import numpy as np
from app.protocol.types import MetadataTensor, ModelMetadata

METADATA = ModelMetadata("waiting", "1", "", [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])])

def load(): pass
def warm_up(model): pass

def predict(model, x: np.ndarray):
    Path("/tmp/running").touch()
    while not Path("/tmp/enough").exists():
        time.sleep(0.01)
    return x
"""

# Replaces apt-get. It prints its arguments, and no package is called "unknown".
APT_GET = r"""#!/bin/sh
echo "$@"
touch /var/lib/apt/lists/list
case "$*" in *unknown*) exit 100 ;; esac
"""

UNCOMPILED = """
import os, sys
import app.cli.healthcheck, app.inference.data_plane, app.rest.routes
import grpc_service.server, gunicorn.app.wsgiapp, pandas
kept = {name: getattr(module, "__cached__", None) for name, module in sys.modules.items()}
print([name for name, file in kept.items() if file and not os.path.exists(file)])
"""


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stage]]:
    """Build the Dockerfile's stages."""
    if (
        os.geteuid() != 0
        or subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"]).returncode
    ):
        missing(
            "root, and namespaces of its own, which the image's steps take without an engine of containers"
        )
    if not all(Path(sys.base_prefix, "bin", name).exists() for name in ("python", "pip")):
        missing("a Python that has its commands python and pip, as the base image's has")
    with built(DOCKERFILE, ROOT, tmp_path_factory.mktemp("image")) as stages:
        yield stages


@pytest.fixture
def image(stages: dict[str, Stage]) -> Stage:
    return stages["last"]


@contextmanager
def container(
    image: Stage, folder: Path, mounts: dict[str, Path] | None = None, **env: str
) -> Iterator[Container]:
    """Start the service in a container and wait until it is healthy. At the end, it must exit with 0 after SIGTERM."""
    output = folder / "output.txt"
    started = Container(
        image, {"HOST": "127.0.0.1", "SHUTDOWN_DELAY_SECONDS": "0", **env}, mounts or {}, output
    )
    try:
        assert not started.healthy()
        wait_for(lambda: started.process.poll() is not None or started.healthy())
        assert started.process.poll() is None, output.read_text()
        yield started
        started.stop()
        assert started.process.wait(60) == 0, output.read_text()
    finally:
        started.process.kill()
        started.process.wait()
    assert "Read-only file system" not in output.read_text()


def post(port: int, model: str, request: object) -> dict:
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    with urllib.request.urlopen(url, json.dumps(request).encode(), timeout=60) as response:
        return json.load(response)


def test_image_serves(image: Stage, tmp_path: Path) -> None:
    """A read-only, unprivileged container serves both protocols, ignores a proxy and logs JSON."""
    http, rpc = free_ports(2)
    env = {"HTTP_PORT": str(http), "GRPC_PORT": str(rpc), "http_proxy": "http://127.0.0.1:9"}
    with container(image, tmp_path, **env) as running:
        wait_for(lambda: '"iris 1 is ready"' in (tmp_path / "output.txt").read_text())
        assert post(http, "iris", FLOWER)["outputs"][0]["data"] == ["setosa"]
        features = RequestInput(
            name="features", datatype="FP32", shape=[1, 4], data=np.ones(4, np.float32)
        )
        with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
            assert (
                infer(channel, "iris", InferenceRequest(inputs=[features])).outputs[0].name
                == "label"
            )
        status = dict(
            line.split(":\t", 1)
            for line in (running.files / "proc/1/status").read_text().splitlines()
        )
        assert status["NSpid"].split()[-1] == "1"
        assert status["Uid"].split() == status["Gid"].split() == ["10001"] * 4
        assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Groups"].strip()) == ("1", "")
        with pytest.raises(OSError, match="Read-only"):
            (running.files / "srv/new").touch()
    for line in (tmp_path / "output.txt").read_text().splitlines():
        assert json.loads(line)["level"] in {"DEBUG", "INFO", "WARNING"}, line


def test_image_stops(image: Stage, tmp_path: Path) -> None:
    """After SIGTERM to process 1, a running request finishes. A mounted file replaces the image's file."""
    http, rpc = free_ports(2)
    (tmp_path / "predict.py").write_text(WAITING)
    mounts = {"/srv/app/predict.py": tmp_path / "predict.py"}
    env = {"HTTP_PORT": str(http), "GRPC_PORT": str(rpc), "WORKERS": "1"}
    with container(image, tmp_path, mounts, **env) as running, ThreadPoolExecutor() as pool:
        log, shared = tmp_path / "output.txt", running.files / "tmp"
        wait_for(lambda: '"waiting 1 is ready"' in log.read_text())
        request = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [3]}]}
        response = pool.submit(post, http, "waiting", request)
        wait_for((shared / "running").exists)
        running.stop()
        wait_for(lambda: "Handling signal: term" in log.read_text())
        assert running.process.poll() is None
        assert not response.done()
        (shared / "enough").touch()
        assert response.result()["outputs"][0]["data"] == [3]
        assert running.process.wait(60) == 0


def test_image_contains_only_required_files(image: Stage) -> None:
    """The image has no pip and no template files, has bytecode of all imported modules, and all files are readable."""
    for python in ("/venv/bin/python", "/usr/local/bin/python"):
        for module in ("pip", "ensurepip"):
            assert image.shell(f"{python} -m {module}").returncode != 0
    assert image.shell("ls /srv").stdout.split() == [
        *("__pycache__", "app", "deploy", "grpc_service", "gunicorn.conf.py", "model", "protos"),
        *("pyproject.toml", "setup.cfg", "setup.py"),
    ]
    assert image.shell("find /srv /venv ! -type l ! -perm -o=r").stdout == ""
    without = image.shell(f"python -c '{UNCOMPILED}'")
    assert (without.returncode, without.stdout) == (0, "[]\n")


def test_image_installs_system_packages(image: Stage) -> None:
    """APT_PACKAGES are installed without recommended packages and lists. By default, apt-get does not run."""
    steps = read_dockerfile(DOCKERFILE.read_text())[-1]
    (step,) = (rest for name, rest in steps if name == "RUN" and "apt-get" in rest)
    made = image.shell(
        f"mkdir -p /tmp/bin /var/lib/apt/lists\ncat > /tmp/bin/apt-get <<'END'\n{APT_GET}END\n"
    )
    assert (made.returncode, image.shell("chmod +x /tmp/bin/apt-get").returncode) == (0, 0)

    def install(packages: str) -> subprocess.CompletedProcess[str]:
        environment = {**image.env, "PATH": f"/tmp/bin:{image.env['PATH']}"}
        return replace(image, env=environment, arguments={"APT_PACKAGES": packages}).shell(step)

    done = install("libgl1 g++")
    assert (done.returncode, done.stdout) == (
        0,
        "update\ninstall --yes --no-install-recommends libgl1 g++\n",
    )
    assert image.shell("ls /var/lib/apt/lists").stdout == ""
    assert install("unknown").returncode == 100
    assert image.arguments["APT_PACKAGES"] == ""
    assert (install("").returncode, install("").stdout) == (0, "")


def test_stale_lock_stops_build(stages: dict[str, Stage], tmp_path: Path) -> None:
    """If a package of setup.cfg is missing in the lock, the build fails and suggests `make lock`."""
    text = (ROOT / "setup.cfg").read_text()
    (tmp_path / "setup.cfg").write_text(
        text.replace("    flask>", "    sampleproject>=4\n    flask>")
    )
    builder = stages["builder"]
    (steps,) = (
        each
        for each in read_dockerfile(DOCKERFILE.read_text())
        if each and each[0][1].endswith(" AS builder")
    )
    builder.copy("setup.cfg ./", tmp_path, stages)
    done = builder.shell(steps[-1][1])
    assert done.returncode != 0
    assert "requires sampleproject, which is not installed" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("Run make lock.")


def test_dockerfile_passes_hadolint() -> None:
    """hadolint reports no findings for the Dockerfile."""
    assert lint_findings(DOCKERFILE) == ""


def test_image_agrees_with_settings_and_chart(render: Render) -> None:
    """The image exposes the service's ports, runs as the chart's user, and starts gunicorn as process 1."""
    last = dict(read_dockerfile(DOCKERFILE.read_text())[-1])
    context = render()["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert last["EXPOSE"] == f"{Settings().http_port} {Settings().grpc_port}"
    assert last["USER"] == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert json.loads(last["CMD"]) == ["gunicorn", "app:create_app()"]
    assert re.match(
        r'org\.opencontainers\.image\.title="Open Inference Service" +org', last["LABEL"]
    )
