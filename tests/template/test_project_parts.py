"""Projects without parts that an answer removes."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from tests.template.baking import ROOT, Bake, files
from tests.template.dockerfiles import lint_findings


@pytest.mark.parametrize(
    ("license_name", "author"), [("Apache-2.0", "Ada"), ("MIT", "Ada"), ("BSD-3-Clause", "")]
)
def test_license(bake: Bake, out: Path, license_name: str, author: str) -> None:
    """The license answer sets LICENSE, README, package and image metadata.

    License texts that were not chosen are removed.
    """
    assert bake(project_name="Free", license=license_name, author=author).returncode == 0
    project = out / "free"
    text = (project / "LICENSE").read_text()
    if license_name == "Apache-2.0":
        assert text == (ROOT / "LICENSE").read_text()
    else:
        assert f"\nCopyright (c) {author or 'The free authors'}\n" in text
    assert f"\n{license_name}. See [LICENSE](LICENSE).\n" in (project / "README.md").read_text()
    assert f"ARG LICENSES={license_name}\n" in (project / "deploy/Dockerfile").read_text()
    assert not (project / "licenses").exists()
    command = [
        sys.executable,
        "-W",
        "error",
        "setup.py",
        "--quiet",
        "egg_info",
        "--egg-base",
        str(out),
    ]
    subprocess.run(command, cwd=project, check=True)
    package = (out / "free.egg-info/PKG-INFO").read_text().splitlines()
    assert {f"License-Expression: {license_name}", "License-File: LICENSE"} <= set(package)


def test_project_without_model_page(bake: Bake, out: Path) -> None:
    """With model_page=no, the page, the OpenAPI description and their package are left out, and the service works."""
    assert bake(project_name="Bare", model_page="no").returncode == 0
    project = out / "bare"
    assert not (project / "app/ui").exists()
    assert "browser" not in (project / "README.md").read_text()
    for name in ("setup.cfg", "deploy/requirements.txt"):
        assert "swagger" not in (project / name).read_text()
    code = """
from app import create_app
client = create_app().test_client()
print(*(client.get(path).status_code for path in ("/v2", "/", "/v2/docs", "/v2/docs/openapi.json", "/metrics")))
"""
    assert run_in(project, code) == "200 404 404 404 200\n"


@pytest.mark.parametrize("packages", ["", "libgl1 libstdc++6"])
def test_system_packages(bake: Bake, out: Path, packages: str) -> None:
    """The answer apt_packages is the default of the image's build argument."""
    assert bake(project_name="System", apt_packages=packages).returncode == 0
    dockerfile = out / "system/deploy/Dockerfile"
    assert f'\nARG APT_PACKAGES="{packages}"\n' in dockerfile.read_text()
    assert lint_findings(dockerfile) == ""


def run_in(project: Path, code: str) -> str:
    """Return the output of the code in the project, without access to this repository's editable installation."""
    first = "import sys; sys.meta_path = [each for each in sys.meta_path if '__editable__' not in each.__module__]\n"
    done = subprocess.run(
        [sys.executable, "-c", first + code], cwd=project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_project_without_batch_tools(bake: Bake, out: Path) -> None:
    """By default, a project lacks `infer`, `bench` and their extras, and is otherwise identical."""
    for name, answers in {"plain": {}, "full": {"batch_tools": "yes"}}.items():
        assert bake(project_name=name, project_slug="project", **answers).returncode == 0
        (out / "project").rename(out / name)
    of_batch = {name for name in files(out / "full") if name.startswith("app/cli/batch/")}
    assert "app/cli/batch/infer.py" in of_batch
    assert files(out / "plain") == files(out / "full") - of_batch
    extras = configparser.ConfigParser()
    extras.read(out / "plain/setup.cfg")
    assert set(extras["options.extras_require"]) == {"dev", "reload", "tracing"}
    for name, commands in (("plain", False), ("full", True)):
        output = run_in(out / name, "from app.cli import main; main(['--help'])")
        assert [f"  {command} " in output for command in ("serve", "infer", "bench")] == [
            True,
            commands,
            commands,
        ]
