"""Create virtual environments and projects for the tests, outside of the tests' environment."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests/template/clients"
# Without this, clients send requests to 127.0.0.1 through a proxy that the environment sets.
LOCAL = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def make_environment(name: str, requirements: Path, python: str | Path = sys.executable) -> Path:
    """Return the Python of .venv-NAME.

    The environment is created again when `requirements` or the version of `python` changes.
    """

    def install(folder: Path) -> None:
        uv = [sys.executable, "-m", "uv"]  # pip takes more than a minute
        run(*uv, "venv", "--quiet", "--clear", "--python", python, folder)
        packages = ["--python", folder / "bin" / "python", "-r", requirements]
        run(*uv, "pip", "install", "--quiet", *packages)

    python_version = run(python, "-c", "import sys\nprint(sys.version, sys.base_prefix)")
    content = python_version + requirements.read_text()
    environment = install_once(name, content, install)
    return environment / "bin" / "python"


def install_once(name: str, content: str, install: Callable[[Path], None]) -> Path:
    """Return the directory .venv-NAME after `install(directory)`.

    The function runs again when `content` changes.
    """
    folder = ROOT / f".venv-{name}"
    stamp = folder / "installed.sha256"
    digest = hashlib.sha256(content.encode()).hexdigest()
    with (ROOT / f".venv-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        is_installed = stamp.exists() and stamp.read_text() == digest
        if not is_installed:
            install(folder)
            stamp.write_text(digest)
    return folder


def make_clients() -> Path:
    """Return the Python of .venv-clients. The directory of the Python also has grpcurl."""
    return make_environment("clients", CLIENTS / "requirements.txt")


def make_triton() -> Path:
    """Return the Python of .venv-triton.

    It is the system's Python, because Triton's Python backend is linked against its libpython.
    """
    requirements = ROOT / "dev/benchmarks/servers/triton/requirements.txt"
    return make_environment("triton", requirements, "/usr/bin/python3")


def version_in(python: Path, package: str) -> str:
    """Return the version of a package in the environment of `python`."""
    script = f"from importlib.metadata import version\nprint(version('{package}'))"
    return run(python, "-c", script).strip()


def make_node_packages() -> Path:
    """Return the directory node_modules with the packages of the client for Node.js."""
    manifest = CLIENTS / "node" / "package.json"

    def install(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        shutil.copy(manifest, folder)
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        run("npm", "install", "--prefix", folder, *options)

    environment = install_once("node", manifest.read_text(), install)
    return environment / "node_modules"


def make_mlserver() -> Path:
    """Return the Python of .venv-mlserver. MLServer needs a Python below 3.13."""
    python: str | None
    if sys.version_info < (3, 13):
        python = sys.executable
    else:
        python = shutil.which("python3.12") or shutil.which("python3.11")
    if python is None:
        pytest.fail("Cannot install MLServer: no python3.12 or python3.11 on PATH")

    requirements = ROOT / "tests/template/mlserver_codecs/requirements.txt"
    return make_environment("mlserver", requirements, python)


def make_project(out: Path, template: Path = ROOT, **answers: str) -> Path:
    """Generate a project in the directory `out`, and return the project's directory.

    The template is this repository or a copy of it.
    """
    words = [f"{name}={answer}" for name, answer in answers.items()]
    cookiecutter = [sys.executable, "-m", "cookiecutter"]
    # cookiecutter reads a configuration from the home directory, and writes the answers into it.
    run(*cookiecutter, template, "--no-input", "-o", out, *words, HOME=str(out))

    directories = [path for path in out.iterdir() if path.is_dir()]
    # Cookiecutter's own directories in HOME start with a dot, such as .cookiecutter_replay.
    (project,) = [path for path in directories if not path.name.startswith(".")]
    return project


def give_messages(project: Path) -> Path:
    """Copy the compiled gRPC messages into the project, as its installation would.

    Return the project.
    """
    for compiled in (ROOT / "grpc_service").glob("*.binpb"):
        shutil.copy(compiled, project / "grpc_service")
    return project


def link_packages(project: Path, python: Path | None = None) -> Path:
    """Give a project an environment like that of `make`, without an installation.

    It uses the packages of `python`, or of the tests. Return the project.
    """
    give_messages(project)
    environment = project / ".venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    _link_site_packages(environment, python)
    _write_commands(environment, project.name)

    # The stamps of the Makefile. They are newer than their sources, so `make` installs nothing.
    for stamp in (".serve", ".dev"):
        (environment / stamp).touch()
    return project


def _link_site_packages(environment: Path, python: Path | None) -> None:
    """Let the environment import the packages of `python`, or of the tests, and the project."""
    if python is None:
        paths = sys.path
    else:
        paths = [str(path) for path in python.parents[1].glob("lib/python*/site-packages")]
    # site-packages, or dist-packages of Debian, without the paths of the tests' own code.
    package_paths = [path for path in paths if path.endswith("-packages")]

    (site_packages,) = environment.glob("lib/python*/site-packages")
    # The first line is the project, as in an editable installation. It is relative to the
    # directory of the packages.
    lines = ["../../../..", *package_paths]
    (site_packages / "here.pth").write_text("\n".join(lines))


def _write_commands(environment: Path, project_name: str) -> None:
    """Write the commands of the project and of gunicorn, and link the linters."""
    scripts = {
        project_name: "sys.path.insert(0, '.')\nfrom app.cli import main\n\nmain()",
        "gunicorn": "from gunicorn.app.wsgiapp import run\n\nrun()",
    }
    for name, script in scripts.items():
        command = environment / "bin" / name
        command.write_text(f"#!{environment}/bin/python\nimport sys\n\n{script}\n")
        command.chmod(0o755)
    for tool in ("ruff", "mypy"):
        installed_tool = Path(sys.executable).with_name(tool)
        (environment / "bin" / tool).symlink_to(installed_tool)


@pytest.fixture(scope="session", autouse=True)
def fast_tools() -> Iterator[None]:
    """Make the tools of generated projects faster.

    Their pytest loads no plugins, which only this repository has. Their mypy shares a cache.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.setenv("MYPY_CACHE_DIR", str(ROOT / ".cache" / "mypy"))
        yield


@pytest.fixture(scope="session")
def linked_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with all parts and the packages installed here.

    Tests must change only copies of it.
    """
    project = make_project(tmp_path_factory.mktemp("linked"), batch_tools="yes")
    return link_packages(project)


def run(*command: str | Path, timeout: float | None = None, **environment: str) -> str:
    """Run the command and return its output.

    Fail with the output and errors if the exit status is not 0. Raise TimeoutExpired after
    `timeout` seconds.
    """
    result = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, (
        f"{command} exited with {result.returncode}:\n{result.stdout}{result.stderr}"
    )
    return result.stdout
