"""Build images with podman, and run them, without a registry and apart from the machine's own images.

debootstrap installs Debian, and the Python that runs the tests is copied into it. The result has
the name of the image from which deploy/Dockerfile starts, and the same layout: a Python with pip in
/usr/local. So the Dockerfile is built as it is.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.processes import wait_for

from .helm import missing

COMMANDS = ["podman", "runc", "debootstrap"]
PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
DEBIAN = "trixie"
MIRROR = "http://deb.debian.org/debian"
BASE_NAME = f"docker.io/library/python:{PYTHON_VERSION}-slim-{DEBIAN}"
# Debian packages that Python's standard library needs.
LIBRARIES = [
    "ca-certificates",
    "libbz2-1.0",
    "libffi8",
    "liblzma5",
    "libreadline8t64",
    "libsqlite3-0",
    "libssl3t64",
    "libuuid1",
    "zlib1g",
]
BASE_DOCKERFILE = f"""
FROM scratch
COPY system/ /
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
RUN ldconfig \\
    && ln -s python{PYTHON_VERSION} /usr/local/bin/python3 \\
    && ln -s python3 /usr/local/bin/python \\
    && python -c "import bz2, ctypes, lzma, sqlite3, ssl, uuid, zlib" \\
    && python -m ensurepip --default-pip
CMD ["python3"]
"""

# Each build writes a small cache to /var/lib/containers, which no option of podman changes.
# Therefore, a build sees empty directories instead, which disappear with it.
WITHOUT_MACHINE_CACHE = [
    "unshare",
    "--mount",
    "--propagation=private",
    "sh",
    "-c",
    'mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /var/cache && exec "$@"',
    "sh",
]
# The machine's certificates and package index, for a machine whose network needs them.
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PIP_VARIABLES = ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"]
# podman's own limits may be higher than those of this machine, which would be an error.
LIMITS = ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
# Logs are files, not entries in the machine's journal. The tests run health checks, not systemd.
RUN_OPTIONS = ["--log-driver=k8s-file", "--no-healthcheck", *LIMITS]
# The options of `docker run` in docs/deployment.md.
RESTRICTIONS = [
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
]
STOP_SECONDS = 45


class Podman:
    """podman with images and containers in `folder`. They disappear with the folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        # By default, podman stores these in /var/lib, /run and /etc.
        self.command = [
            "podman",
            f"--root={folder}/store",
            f"--runroot={folder}/run",
            f"--tmpdir={folder}/libpod",
            f"--network-config-dir={folder}/networks",
            "--cgroup-manager=cgroupfs",
            "--events-backend=none",
            "--runtime=runc",
        ]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run podman, and return the finished process. Its output includes the errors."""
        return self._run([*self.command, *arguments])

    def build(
        self, folder: Path, dockerfile: Path, tag: str, *options: str
    ) -> subprocess.CompletedProcess[str]:
        """Build the Dockerfile with the files of `folder`. Return the finished process, successful or not."""
        command = [
            *WITHOUT_MACHINE_CACHE,
            *self.command,
            "build",
            "--pull=never",
            "--network=host",
            "--format=docker",  # the other format has no HEALTHCHECK
            *LIMITS,
            f"--volume={CERTIFICATES}:{CERTIFICATES}:ro",
            f"--volume={self._pip_configuration()}:/etc/pip.conf:ro",
            f"--file={dockerfile}",
            f"--tag={tag}",
            *options,
            str(folder),
        ]
        return self._run(command)

    def build_project(
        self, project: Path, tag: str, *options: str
    ) -> subprocess.CompletedProcess[str]:
        """Build the image of a project that was generated for PYTHON_VERSION."""
        return self.build(project, project / "deploy" / "Dockerfile", tag, *options)

    def inspect_image(self, image: str) -> dict[str, Any]:
        """Return what podman knows about an image, with the members `Config` and `Healthcheck`."""
        done = self.run("image", "inspect", image)
        assert done.returncode == 0, done.stdout
        (inspected,) = json.loads(done.stdout)
        return inspected

    def run_once(self, image: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a new container, and return the finished process."""
        return self.run("run", "--rm", "--network=none", *RUN_OPTIONS, image, *command)

    def _pip_configuration(self) -> Path:
        """Write a configuration of pip with the package index of this process, and return its path."""
        lines = ["[global]", f"cert = {CERTIFICATES}"]
        for variable in PIP_VARIABLES:
            if value := os.environ.get(variable):
                option = variable.removeprefix("PIP_").lower().replace("_", "-")
                lines.append(f"{option} = {value}")
        path = self.folder / "pip.conf"
        path.write_text("\n".join(lines) + "\n")
        return path

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def require_commands() -> None:
    """Skip the test if this machine cannot build images. In CI, fail it."""
    for command in COMMANDS:
        if not shutil.which(command):
            missing(f"the command {command}")
    if os.geteuid() != 0:
        missing("root, to create Debian's file system and containers,")


def build_base_image(podman: Podman) -> None:
    """Build the image from which deploy/Dockerfile starts."""
    context = podman.folder / "base"
    system = context / "system"
    system.mkdir(parents=True)
    install_debian(system)
    copy_python(system / "usr" / "local")
    dockerfile = context / "Dockerfile"
    dockerfile.write_text(BASE_DOCKERFILE)
    done = podman.build(context, dockerfile, BASE_NAME)
    assert done.returncode == 0, done.stdout
    shutil.rmtree(context)


def install_debian(system: Path) -> None:
    include = ",".join(LIBRARIES)
    command = ["debootstrap", "--variant=minbase", f"--include={include}", DEBIAN, system, MIRROR]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    # The official image has no package lists.
    for folder in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(system / folder)
        (system / folder).mkdir()


def copy_python(target: Path) -> None:
    """Copy the Python that runs the tests to `target`, without installed packages."""
    prefix = Path(sys.base_prefix)
    library = Path("lib") / f"python{PYTHON_VERSION}"
    ignored = shutil.ignore_patterns("__pycache__", "site-packages", "test")
    shutil.copytree(prefix / library, target / library, symlinks=True, ignore=ignored)
    shutil.copy(prefix / "bin" / f"python{PYTHON_VERSION}", target / "bin")
    for shared in prefix.glob("lib/libpython*.so*"):
        shutil.copy(shared, target / "lib", follow_symlinks=False)


class Container:
    """A container that runs the command of its image, with the restrictions of docs/deployment.md."""

    NAME = "service"

    def __init__(self, podman: Podman, image: str, options: list[str]):
        self._podman = podman
        kind, *self._health_check = podman.inspect_image(image)["Healthcheck"]["Test"]
        assert kind == "CMD"
        done = podman.run(
            "run",
            "--detach",
            f"--name={self.NAME}",
            "--network=host",
            *RUN_OPTIONS,
            *RESTRICTIONS,
            *options,
            image,
        )
        assert done.returncode == 0, done.stdout

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, and return the finished process."""
        return self._podman.run("exec", self.NAME, *command)

    def is_healthy(self) -> bool:
        """Run the health check of the image, and return whether it succeeds."""
        return self.execute(*self._health_check).returncode == 0

    def is_ready(self) -> bool:
        """Return whether the model is ready."""
        return self.execute("python", "-m", "app", "healthcheck", "ready").returncode == 0

    def log(self) -> str:
        return self._podman.run("logs", self.NAME).stdout

    def is_running(self) -> bool:
        return self._state("Status") == "running"

    def exit_status(self) -> int:
        return int(self._state("ExitCode"))

    def send_sigterm(self) -> None:
        """Send SIGTERM to process 1."""
        done = self._podman.run("kill", "--signal=TERM", self.NAME)
        assert done.returncode == 0, done.stdout

    def stop(self) -> None:
        """Stop the container as docs/deployment.md does: SIGTERM, and SIGKILL after STOP_SECONDS."""
        done = self._podman.run("stop", f"--time={STOP_SECONDS}", self.NAME)
        assert done.returncode == 0, done.stdout

    def remove(self) -> None:
        self._podman.run("rm", "--force", "--time=0", self.NAME)

    def _state(self, member: str) -> str:
        done = self._podman.run("inspect", f"--format={{{{.State.{member}}}}}", self.NAME)
        return done.stdout.strip()


@contextmanager
def container(podman: Podman, image: str, *options: str, **environment: str) -> Iterator[Container]:
    """Run a container. At the end, it must exit with status 0 after SIGTERM."""
    settings = {"HOST": "127.0.0.1", "SHUTDOWN_DELAY_SECONDS": "0", **environment}
    variables = [f"--env={name}={value}" for name, value in settings.items()]
    running = Container(podman, image, [*options, *variables])
    try:
        yield running
        running.stop()
        assert running.exit_status() == 0, running.log()
        assert "Read-only file system" not in running.log()
    finally:
        running.remove()


def wait_until_ready(running: Container) -> None:
    wait_for(lambda: not running.is_running() or running.is_ready())
    assert running.is_running(), running.log()
