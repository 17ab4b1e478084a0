"""The GitHub workflows here and in a project: pinned actions, minimal permissions and working scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.version import __version__
from tests.kit.environments import ROOT, make_project

BESIDE = Path(sys.executable).parent
# Replaces docker. It logs its arguments, and reports digests in two registries.
DOCKER = r"""#!/usr/bin/env bash
echo "$*" >> commands.txt
case "$1" in
  login) cat > password.txt ;;
  manifest) test -n "$PUSHED" ;;
  inspect) printf 'image@sha256:%064d\nother@sha256:%064d\n' 1 2 ;;
esac
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project."""
    return make_project(tmp_path_factory.mktemp("project"), project_name="Probe")


def release(project: Path) -> dict[str, Any]:
    return yaml.safe_load((project / ".github/workflows/release.yml").read_text())


def script(project: Path, job: str, step: str) -> str:
    (command,) = (
        step_of_job["run"]
        for step_of_job in release(project)["jobs"][job]["steps"]
        if step_of_job.get("name") == step
    )
    return command


def run(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script like GitHub runs a step: with bash, which stops at the first failure."""
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(
        command, cwd=folder, env={**env, "PATH": path}, capture_output=True, text=True
    )


@pytest.mark.parametrize("of", ["root", "project"])
def test_linters_find_nothing(project: Path, of: str) -> None:
    """zizmor reports no security findings, and the files are valid for GitHub's schemas."""
    folder = (ROOT if of == "root" else project) / ".github"
    done = subprocess.run(
        [BESIDE / "zizmor", "--offline", "--quiet", folder], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    for schema, pattern in {
        "vendor.github-workflows": "workflows/*",
        "vendor.dependabot": "dependabot.yml",
    }.items():
        if files := list(folder.glob(pattern)):
            command = [BESIDE / "check-jsonschema", "--builtin-schema", schema, *files]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("of", ["root", "project"])
def test_actions_are_pinned(project: Path, of: str) -> None:
    """Every action is pinned to a commit with its version in a comment. Each action has one commit."""
    texts = [
        path.read_text()
        for path in ((ROOT if of == "root" else project) / ".github/workflows").iterdir()
    ]
    uses = [line for text in texts for line in text.splitlines() if "uses:" in line]
    assert uses
    for line in uses:
        assert re.search(r"uses: [-\w]+/[-\w]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    actions = {line.split("uses: ")[1] for line in uses}
    assert len({action.split("@")[0] for action in actions}) == len(actions)


def test_permissions_are_minimal(project: Path) -> None:
    """Only the push job has write permissions, and it checks out no code."""
    workflow = release(project)
    assert workflow["permissions"] == {}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    assert rights.pop("push") == {"packages": "write", "id-token": "write", "attestations": "write"}
    assert set(map(str, rights.values())) == {"{'contents': 'read'}"}
    assert [job.get("needs") for job in workflow["jobs"].values()] == [None, "test", "image"]
    assert not [
        step for step in workflow["jobs"]["push"]["steps"] if "checkout" in step.get("uses", "")
    ]
    assert yaml.safe_load((project / ".github/workflows/ci.yml").read_text())["permissions"] == {
        "contents": "read"
    }


@pytest.mark.parametrize(
    ("repository", "image"),
    [
        ("churn", "ghcr.io/ada/churn"),
        ("ada/churn", "docker.io/ada/churn"),
        ("ghcr.io/team/churn", "ghcr.io/team/churn"),
        ("images.example:5000/churn", "images.example:5000/churn"),
    ],
)
def test_image_is_pushed(project: Path, tmp_path: Path, repository: str, image: str) -> None:
    """The image is pushed to the registry in its name, with the tag's version, and its digest is attested."""
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    env = {
        "IMAGE_REPOSITORY": repository,
        "GITHUB_REPOSITORY_OWNER": "Ada",
        "GITHUB_REF_NAME": "v1.2.3+4",
        "GITHUB_OUTPUT": str(tmp_path / "output.txt"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.txt"),
        "REGISTRY_USERNAME": "ada",
        "REGISTRY_PASSWORD": "se cret",
    }
    done = run(tmp_path, script(project, "push", "Push"), **env)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "commands.txt").read_text().splitlines()
    assert commands[0] == f"login --username ada --password-stdin {image.split('/')[0]}"
    assert (tmp_path / "password.txt").read_text() == "se cret\n"
    assert f"tag service:release {image}:1.2.3_4" in commands
    assert f"push --quiet {image}:1.2.3_4" in commands
    assert (tmp_path / "output.txt").read_text() == f"name={image}\ndigest=sha256:{1:064d}\n"
    upgrade = (tmp_path / "summary.txt").read_text()
    assert upgrade.endswith(
        f" deploy/helm --set image.repository={image},image.digest=sha256:{1:064d}\n"
    )
    assert run(tmp_path, script(project, "push", "Push"), **env, PUSHED="1").returncode != 0


def test_rejects_tag_of_another_version(project: Path) -> None:
    """A tag must match the service's version, which `make version` changes."""
    text = script(project, "image", "Compare the tag with the service's version")
    assert run(project, text, GITHUB_REF_NAME=f"v{__version__}").returncode == 0
    assert run(project, text, GITHUB_REF_NAME=f"v{__version__}1").returncode != 0
    assert subprocess.run(["make", "-C", project, "version", "VERSION=12.0.3-rc.1"]).returncode == 0
    assert run(project, text, GITHUB_REF_NAME="v12.0.3-rc.1").returncode == 0


def test_build_arguments_exist_in_dockerfile(project: Path) -> None:
    """Each build argument of the workflow is declared in the Dockerfile."""
    given = re.findall(r"--build-arg (\w+)=", script(project, "image", "Build"))
    taken = re.findall(r"^ARG (\w+)", (project / "deploy/Dockerfile").read_text(), re.MULTILINE)
    assert given
    assert set(given) <= set(taken)
