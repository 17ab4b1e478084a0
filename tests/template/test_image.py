"""deploy/Dockerfile: the image's own commands, without an engine of containers."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.config import Settings

from .helm import ROOT, missing
from .manifests import DEPLOY, Render


def dockerfile(instruction: str) -> str:
    """The one line of the Dockerfile's last stage that starts with `instruction`."""
    stage = re.split(r"^FROM ", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)[-1]
    (line,) = (line for line in stage.splitlines() if line.startswith(instruction + " "))
    return line.removeprefix(instruction + " ")


def test_dockerfile_passes_hadolint():
    """hadolint finds nothing in the Dockerfile."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    hadolint = shutil.which("hadolint", path=beside)
    if hadolint is None:
        missing("hadolint")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_image_agrees_with_settings_and_chart(render: Render):
    """The image exposes the service's ports, runs as the chart's user, and gunicorn is what SIGTERM reaches."""
    context = render()["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert dockerfile("EXPOSE") == f"{Settings().http_port} {Settings().grpc_port}"
    assert dockerfile("USER") == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert json.loads(dockerfile("CMD")) == ["gunicorn", "app:create_app()"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder that holds what the .dockerignore lets into the image, and the compiled protos."""
    folder = tmp_path / "srv"
    folder.mkdir()
    for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source = ROOT / line.removeprefix("!").rstrip("/")
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / source.name)
    return folder


def test_image_serves_and_stops(image: Path):
    """What the image holds is enough to serve; its health check says so, past any proxy, and SIGTERM ends it."""
    http, grpc = free_port(), free_port()
    env = {**os.environ, "HTTP_PORT": str(http), "GRPC_PORT": str(grpc), "http_proxy": "http://127.0.0.1:9"}
    health = json.loads(dockerfile("HEALTHCHECK").partition("CMD ")[2])
    command = json.loads(dockerfile("CMD"))

    def healthy() -> bool:
        check = [sys.executable, *health[1:]]
        return not subprocess.run(check, cwd=image, env=env, stderr=subprocess.DEVNULL).returncode

    assert not healthy()
    with subprocess.Popen([sys.executable, "-m", *command], cwd=image, env=env) as server:
        try:
            deadline = time.monotonic() + 30
            while not healthy():
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            server.terminate()
        assert server.wait(30) == 0
