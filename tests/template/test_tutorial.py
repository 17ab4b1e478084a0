"""The files and commands of the tutorial work as printed, and its chart has the objects that they name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.kit.environments import ROOT, make_project

from .blocks import read_guide
from .helm import Helm
from .prepared import run_page
from .test_blocks import TUTORIAL

PAGE = (ROOT / TUTORIAL).read_text()
COMMANDS = [command for step in read_guide(PAGE).steps for command in step.commands]


@pytest.mark.slow
def test_page(tmp_path: Path, linked_project: Path) -> None:
    """The commands of the page work in order, and give the printed output."""
    run_page(TUTORIAL, PAGE, shutil.copytree(linked_project, tmp_path / "template", symlinks=True))


def test_chart_has_the_objects_of_the_page(tmp_path: Path, helm: Helm) -> None:
    """The page's values give the pushed image, and a Service with the name and port that the page forwards."""
    (install,) = [command for command in COMMANDS if command.startswith("helm install ")]
    (push,) = [command for command in COMMANDS if command.startswith("docker push ")]
    words = install.replace(
        "deploy/helm", str(make_project(tmp_path, project_name="House prices") / "deploy/helm")
    ).split()
    done = helm("template", *(word for word in words[2:] if word != "--wait"))
    assert done.returncode == 0, done.stderr
    objects = {
        document["kind"]: document for document in yaml.safe_load_all(done.stdout) if document
    }
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert f"docker push {container['image']}" == push
    name, ports = objects["Service"]["metadata"]["name"], objects["Service"]["spec"]["ports"]
    assert f"kubectl port-forward service/{name} 8080:{ports[0]['port']}" in COMMANDS
