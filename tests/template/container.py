"""Run a Dockerfile without a container engine: each stage is a directory with this machine's files as its lower layer.

This machine and its Python replace the base image, so the tests do not cover what only the real
base image contains. All mounts are in a separate namespace and disappear with it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import string
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .helm import missing

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Variables that a builder passes to RUN by default: package index, certificates and proxies.
HANDED = re.compile(r"PIP_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|\w+_proxy", re.IGNORECASE)
# The namespaces of a container, in addition to the mount namespace.
OWN = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]

Step = tuple[str, str]


def read_dockerfile(text: str) -> list[list[Step]]:
    """Return the stages, each a list of (instruction, arguments).

    The first stage holds the lines before the first FROM.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    stages: list[list[Step]] = [[]]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest.strip()))
    return stages


def copy_context(source: Path, ignore: str, target: Path) -> None:
    """Copy the files of `source` that .dockerignore allows. The last matching line decides."""
    rules = []
    for line in ignore.splitlines():
        if line.strip() and not line.startswith("#"):
            pattern = (
                re.escape(line.lstrip("!").strip("/"))
                .replace(r"\*\*/", "(.*/)?")
                .replace(r"\*", "[^/]*")
            )
            rules.append((re.compile(pattern + "(/.*)?"), line.startswith("!")))
    wanted = {
        line.lstrip("!").split("/")[0] for line in ignore.splitlines() if line.startswith("!")
    }
    for top in wanted:
        for path in [source / top, *(source / top).rglob("*")]:
            name = str(path.relative_to(source))
            if path.is_file() and [kept for rule, kept in rules if rule.fullmatch(name)][-1]:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target / name)


def lint_findings(dockerfile: Path) -> str:
    """Return hadolint's findings for the Dockerfile."""
    hadolint = shutil.which(
        "hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if hadolint is None:
        missing("hadolint")
    return subprocess.run([hadolint, dockerfile], capture_output=True, text=True).stdout


class Namespace:
    """A mount namespace with a tmpfs at `folder`. A sleeping process keeps it open."""

    def __init__(self, folder: Path):
        self.folder = folder
        hold = [
            "unshare",
            "--mount",
            "--propagation=private",
            "sh",
            "-c",
            "echo made; exec sleep infinity",
        ]
        self.holder = subprocess.Popen(hold, stdout=subprocess.PIPE)
        assert self.holder.stdout
        assert self.holder.stdout.readline() == b"made\n"
        self.enter = ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt"]
        folder.mkdir()
        self.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        done = self.attempt(*command)
        assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}"
        return done

    def attempt(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.enter, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def overlay(self, lower: str | Path, target: Path) -> None:
        """Mount `lower` at `target` as a writable overlay."""
        layers = "_".join(target.relative_to(self.folder).parts)
        upper, work = self.folder / "upper" / layers, self.folder / "work" / layers
        self.run("mkdir", "-p", upper, work, target)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        self.run("mount", "-t", "overlay", "-o", options, "overlay", target)

    def close(self) -> None:
        self.holder.kill()
        self.holder.communicate()


@dataclass
class Stage:
    """One stage of a build. `root` is its root file system."""

    namespace: Namespace
    root: Path
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    instructions: dict[str, str] = field(default_factory=dict)

    def mount_base(self) -> None:
        """Mount the base: this machine, with the Python of the tests in /usr/local as in the official image."""
        self.namespace.overlay("/", self.root)
        self.namespace.overlay(sys.base_prefix, self.root / "usr/local")
        self.namespace.run("mount", "--rbind", "/dev", self.root / "dev")
        self.namespace.run("mount", "-t", "proc", "proc", self.root / "proc")
        self.namespace.run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", self.root / "tmp")
        self.namespace.run("chroot", self.root, "ldconfig")

    def run_steps(self, steps: list[Step], context: Path, stages: dict[str, Stage]) -> None:
        for name, rest in steps:
            if name == "RUN":
                done = self.shell(rest)
                assert done.returncode == 0, (
                    f"RUN {rest}\nexited with {done.returncode}:\n{done.stdout}"
                )
            elif name == "COPY":
                self.copy(rest, context, stages)
            elif name == "WORKDIR":
                self.workdir = rest
                self.namespace.run("mkdir", "-p", f"{self.root}{rest}")
            elif name == "ENV":
                for variable in shlex.split(rest):
                    key, _, value = variable.partition("=")
                    self.env[key] = string.Template(value).substitute(self.env)
            elif name == "ARG":
                key, _, value = "".join(shlex.split(rest)).partition("=")
                self.arguments[key] = value
            else:
                assert name in {"USER", "EXPOSE", "HEALTHCHECK", "CMD", "LABEL", "FROM"}, (
                    f"{name} is not known here"
                )
                self.instructions[name] = rest

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run the command of RUN as root, without its cache mounts."""
        command = re.sub(r"^(--mount=\S+ +)*", "", command)
        handed = {name: value for name, value in os.environ.items() if HANDED.fullmatch(name)}
        variables = {"HOME": "/root", **handed, **self.arguments, **self.env}
        return self.namespace.attempt(
            *(
                "chroot",
                self.root,
                "env",
                "-i",
                *(f"{name}={value}" for name, value in variables.items()),
            ),
            *("sh", "-c", f"cd {self.workdir} && {command}"),
        )

    def copy(self, rest: str, context: Path, stages: dict[str, Stage]) -> None:
        """Run COPY into a directory."""
        words = rest.split()
        options = dict(word.lstrip("-").split("=") for word in words if word.startswith("--"))
        *sources, target = (word for word in words if not word.startswith("--"))
        origin = stages[options["from"]].root if "from" in options else context
        into = (
            self.root / self.workdir.strip("/") / target
            if target[0] != "/"
            else Path(f"{self.root}{target}")
        )
        names = " ".join(f"{origin}/{source.strip('/')}" for source in sources)
        mode = f'chmod -R {options["chmod"]} "$aside"' if "chmod" in options else "true"
        copy = "cp -R --preserve=mode,timestamps,links"
        self.namespace.run(
            *("sh", "-ec"),
            f"mkdir -p {into}; aside=$(mktemp -d {self.namespace.folder}/copy.XXXX); for each in {names}; do "
            f'if [ -d "$each" ]; then each="$each/."; fi; {copy} "$each" "$aside"; done; '
            f'{mode}; {copy} "$aside"/. {into}; rm -r "$aside"',
        )


class Container:
    """A container of a finished stage: read-only, without capabilities, with the command as process 1."""

    def __init__(self, stage: Stage, env: dict[str, str], mounts: dict[str, Path], output: Path):
        self.stage = stage
        self.env = {**stage.env, **env}
        root, run = stage.root, ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs"]
        lines = [
            [*run, root / "tmp"],
            [*run, root / "dev/shm"],
            ["mount", "-t", "proc", "proc", root / "proc"],
        ]
        lines += [
            ["mount", "--bind", source, f"{root}{target}"] for target, source in mounts.items()
        ]
        lines += [["mount", "-o", "remount,bind,ro", place] for place in (root, root / "usr/local")]
        script = " && ".join(shlex.join(map(str, line)) for line in lines)
        start = ["chroot", str(root), *self.confined(json.loads(stage.instructions["CMD"]))]
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [*stage.namespace.enter, *OWN, "sh", "-c", f"{script} && exec {shlex.join(start)}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def confined(self, command: list[str]) -> list[str]:
        """Return `command` to run as USER, in WORKDIR, with only the image's variables."""
        user, group = self.stage.instructions["USER"].split(":")
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return [
            *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
            *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"),
            *("env", "-i", f"--chdir={self.stage.workdir}", *variables, *command),
        ]

    @property
    def pid(self) -> int | None:
        """Return the PID of process 1 as seen from outside the container."""
        with suppress(OSError):
            children = (
                Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
                .read_text()
                .split()
            )
            return int(children[0]) if children else None
        return None

    @property
    def files(self) -> Path:
        """Return the container's root file system."""
        return Path(f"/proc/{self.pid}/root")

    def healthy(self) -> bool:
        """Return whether HEALTHCHECK succeeds, run as an engine runs it."""
        health = json.loads(self.stage.instructions["HEALTHCHECK"].partition("CMD ")[2])
        if self.pid is None:
            return False
        inside = [
            "nsenter",
            f"--target={self.pid}",
            "--mount",
            "--pid",
            "--ipc",
            f"--root=/proc/{self.pid}/root",
        ]
        return not subprocess.run([*inside, *self.confined(health)], capture_output=True).returncode

    def stop(self) -> None:
        """Send SIGTERM to process 1."""
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)


@contextmanager
def built(dockerfile: Path, source: Path, folder: Path) -> Iterator[dict[str, Stage]]:
    """Build the stages in `folder` and yield them by name. The last stage is called "last"."""
    context = folder / "context"
    copy_context(source, Path(f"{dockerfile}.dockerignore").read_text(), context)
    namespace = Namespace(folder / "build")
    try:
        stages: dict[str, Stage] = {}
        for steps in read_dockerfile(dockerfile.read_text())[1:]:
            named = re.search(r" AS (\w+)$", steps[0][1])
            name = named.group(1) if named else "last"
            stages[name] = Stage(namespace, namespace.folder / name)
            stages[name].mount_base()
            stages[name].run_steps(steps, context, stages)
        yield stages
    finally:
        namespace.close()
