"""The tutorial works as printed: each step continues with the files and commands of the step before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.service.processes import Running, started, wait_for

from .environments import ROOT
from .helm import Helm
from .test_pages import blocks
from .test_readme import chapter, lines, link_packages, settings, shell

PAGE = ROOT / "docs/tutorial.md"
# These commands install packages, or need docker or a cluster. The test only parses them.
NOT_RUN = ("python3 -m venv ", "tools/bin/pip install ", "docker ", "helm install ", "kubectl ")


def step(name: str) -> tuple[list[str], list[str]]:
    """Return the commands of a step, and its blocks of text and JSON."""
    text = chapter(PAGE, name)
    return lines(text), re.findall(r"^```(?:text|json)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@contextmanager
def serving(project: Path, command: str) -> Iterator[Running]:
    with started(["bash", "-c", command], project, settings()) as service:
        wait_for(lambda: "Try it:" in service.log())
        yield service


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the first step. Only the packages are not installed: they are those of this environment."""
    folder = tmp_path_factory.mktemp("tutorial")
    (*_, create, enter, _), _ = step("1. Create a project")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    create = create.replace("TEMPLATE_URL", f"'{ROOT}'").removeprefix("tools/bin/")
    subprocess.run(
        ["bash", "-c", create], cwd=folder, env={**os.environ, "HOME": str(folder), "PATH": path}, check=True
    )
    return link_packages(folder / enter.removeprefix("cd "))


def test_steps_with_a_project(project: Path) -> None:
    """The example starts, the new model is trained, checked, tested and served, and prints what the page shows."""
    (*_, serve), (shown,) = step("1. Create a project")
    with serving(project, serve) as service:
        for line in shown.splitlines():
            local = line.replace("8080", str(service.http_port)).replace("8081", service.grpc.split(":")[1])
            assert local in service.log()

    train, predict, test = blocks(PAGE.name)
    (project / "train.py").write_text(train)
    commands, (shown,) = step("2. Train your model")
    assert [shell(project, command) for command in commands] == ["", "", shown]

    (project / "app/predict.py").write_text(predict)
    (project / "tests/test_predict.py").write_text(test)
    (check, run_tests), (checked, passed) = step("3. Describe your model")
    assert shell(project, check).endswith(checked)
    assert passed.strip() in shell(project, run_tests)

    (serve, call), (request, response) = step("4. Send a request")
    (project / "request.json").write_text(request)
    with serving(project, serve) as service:
        assert shell(project, call, service) == response.strip()


def test_commands_that_are_not_run(project: Path) -> None:
    """All other commands are valid in bash, and name files, values and objects that the project has."""
    commands = [command for command in lines(PAGE.read_text()) if command.startswith(NOT_RUN)]
    assert len(commands) == 8
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)
    text = " ".join(commands)
    for name in set(re.findall(r"\bdeploy/\S+", text)):
        assert (project / name).exists()
    assert set(re.findall(r"house-prices:(\S+)", text)) == {"0.1.0"}


def test_chart_has_the_objects_of_the_page(project: Path, helm: Helm) -> None:
    """The page's values give the pushed image, and a Service with the name and port that the page forwards."""
    (install,) = [command for command in lines(PAGE.read_text()) if command.startswith("helm install ")]
    (push,) = [command for command in lines(PAGE.read_text()) if command.startswith("docker push ")]
    words = install.replace("deploy/helm", str(project / "deploy/helm")).split()
    done = helm("template", *(word for word in words[2:] if word != "--wait"))
    assert done.returncode == 0, done.stderr
    objects = {each["kind"]: each for each in yaml.safe_load_all(done.stdout) if each}
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert f"docker push {container['image']}" == push
    name, ports = objects["Service"]["metadata"]["name"], objects["Service"]["spec"]["ports"]
    assert f"kubectl port-forward service/{name} 8080:{ports[0]['port']}" in lines(PAGE.read_text())


def test_every_command_is_run_or_parsed() -> None:
    """A new command in the page belongs to one of the tested steps."""
    names = re.findall(r"^## (\d\. .*)$", PAGE.read_text(), re.MULTILINE)
    counts = [len([command for command in step(name)[0] if not command.startswith(NOT_RUN)]) for name in names]
    assert counts == [3, 3, 2, 2, 0, 0]
    assert len(lines(PAGE.read_text())) == sum(len(step(name)[0]) for name in names)
