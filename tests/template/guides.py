"""Run the guides in docs/guides: write the files of a page, start its service, and compare its commands' output.

A page follows these conventions:

- A line that ends with `PATH`: names the file in the block after it. The path is relative to a project.
- A block of `bash` is a command. The block after it is the output.
- Output in a block of `json` is compared as JSON, so that long lines can be wrapped. Other output is compared as text.
- No other fenced blocks are permitted, so that all code of a page is tested.
- Indented commands are not run, because they need a cluster.
- `make serve`, with settings in front, starts the service. The output has some of the lines that the service prints.
- The addresses of the service are 127.0.0.1:8080 and 127.0.0.1:8081. The tests replace them by free ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.service.processes import Running, free_ports, gunicorn, started, wait_for

from .environments import LOCAL, ROOT

GUIDES = ROOT / "docs" / "guides"
REST, GRPC = "127.0.0.1:8080", "127.0.0.1:8081"
BLOCK = re.compile(r"^([^\n]*)\n+```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`([\w./-]+\.\w+)`:$")
SERVE = re.compile(r"((?:[A-Z_]+=\S+ +)*)make serve")
# The parts of a project that the service needs.
PARTS = ("app", "grpc_service", "model", "gunicorn.conf.py", "setup.cfg")


@dataclass
class Step:
    """A command of a page, with the output and its language."""

    command: str
    language: str = "text"
    output: str = ""


@dataclass
class Guide:
    """The files and commands of a page, in the order of the page."""

    files: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


def read_guide(name: str) -> Guide:
    """Return the files and commands of a page.

    Raise AssertionError if a block is neither a file, nor a command, nor its output, or if a command has no output.
    """
    guide, text = Guide(), (GUIDES / f"{name}.md").read_text()
    for label, language, content in BLOCK.findall(text):
        if language == "bash":
            guide.steps.append(Step(content))
        elif named := FILE.search(label):
            guide.files[named[1]] = content
        elif guide.steps and not guide.steps[-1].output:
            guide.steps[-1].language, guide.steps[-1].output = language, content
        else:
            raise AssertionError(f"{name}: a block is not tested:\n{content}")
    assert all(step.output for step in guide.steps), f"{name}: a command has no output"
    return guide


def local_addresses(*others: str) -> dict[str, str]:
    """Return a free address for each address of a page: those of the service, and `others`."""
    shown = [REST, GRPC, *others]
    return {address: f"127.0.0.1:{port}" for address, port in zip(shown, free_ports(len(shown)), strict=True)}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def make_folder(guide: Guide, folder: Path, actual: Mapping[str, str]) -> Path:
    """Write the files of a page into a copy of this project. `actual` replaces texts of the page."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    for name, content in guide.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(replaced(content, actual))
    return folder


def run_guide(
    guide: Guide,
    folder: Path,
    actual: Mapping[str, str],
    then: Callable[[], AbstractContextManager[Any]] = nullcontext,
    python: str | Path = sys.executable,
) -> None:
    """Run the commands of a page in order, and enter the context `then()` after the start of the service.

    `python` is the Python with the packages of the service.
    """
    ports = {"HTTP_PORT": port_of(actual[REST]), "GRPC_PORT": port_of(actual[GRPC])}
    with ExitStack() as stack:
        for step in guide.steps:
            if serve := SERVE.fullmatch(step.command.replace("\\\n", " ").strip()):
                settings = dict(each.split("=", 1) for each in replaced(serve[1], actual).split())
                service = stack.enter_context(gunicorn(folder, python=python, **{"WORKERS": 1, **settings, **ports}))
                check_startup(service, replaced(step.output, actual))
                stack.enter_context(then())
            else:
                check_output(step, run_command(step.command, folder, actual, python))


@contextmanager
def other_server(
    command: list[str | Path],
    folder: Path,
    address: str,
    is_ready: Callable[[Running], bool] = lambda server: server.get("/v2/health/ready") is not None,
    **variables: object,
) -> Iterator[Running]:
    """Run a server that is not this service, and yield it when it is ready."""
    (grpc,) = free_ports(1)
    ports = {"HTTP_PORT": port_of(address), "GRPC_PORT": grpc}
    with started(command, folder, {**ports, **variables}, is_ready) as server:
        yield server


def check_startup(service: Running, lines: str) -> None:
    """Wait until the service has printed each of the lines, which may have a time in front."""
    wait_for(lambda: all(line.strip() in service.log() for line in lines.splitlines()))


def check_output(step: Step, output: str) -> None:
    if step.language == "json":
        assert json.loads(output) == json.loads(step.output), output
    else:
        assert output.rstrip() == step.output.rstrip()


def run_command(command: str, folder: Path, actual: Mapping[str, str], python: str | Path = sys.executable) -> str:
    """Return the output of a command, with the texts that the page has."""
    tools = Path(python).parent
    command = replaced(command, actual).replace(".venv/bin/", f"{tools}/").replace("curl ", "curl --silent ")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, **LOCAL},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return replaced(done.stdout, {there: here for here, there in actual.items()})


def replaced(text: str, actual: Mapping[str, str]) -> str:
    for here, there in actual.items():
        text = text.replace(here, there)
    return text
