"""Run a page: write its files, start its service, run its commands, and compare their output.

- A command that ends with `make serve` or `app serve`, with options, starts the service until the next such command.
  The output has some of the lines that the service prints until its end.
- A block of commands without an output prints nothing.
- `…` in an output stands for any text. Durations, rates, times and process ids may differ.
- Output in a block of `json` is compared as JSON, so that long lines can be wrapped.
- The addresses of the service are 127.0.0.1:8080 and 127.0.0.1:8081. The tests replace them by free ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.kit.environments import LOCAL, ROOT, link_packages
from tests.kit.processes import Running, free_ports, started, wait_for

from .blocks import Guide, Log, Step
from .blocks import read_guide as read_text
from .listed import LISTED

GUIDES = ROOT / "docs" / "guides"
REST, GRPC = "127.0.0.1:8080", "127.0.0.1:8081"
STARTS_SERVICE = re.compile(
    r"(^|\s)(make serve|(\S+/)?gunicorn -|\.venv/bin/python -m app serve\b(?! --help))"
)
SEVERAL_WORKERS = re.compile(r"\bWORKERS=([2-9])\b")
CREATES_PROJECT = re.compile(r"tools/bin/cookiecutter ")
UNITS = r"ms|s|rows/s|req/s|[KM]B/s|infer/sec|usec|KiB|per second|in [\d.]+ s"
# Numbers that differ between runs: with a unit, in a time or an id of a process, or as the padding of pytest.
VARYING = re.compile(
    rf"(?<=finished in )[^\n]+|\d{{4}}-\d\d-\d\dT[\d:.]+Z|\d[\d,.]*(?:e\+\d+)?(?= ?(?:{UNITS})\b)"
    r"|(?<=_ms[=:])[\d.]+|(?<=_ms\":)[\d.]+|(?<=\"pid\":)\d+|={5,}"
)
# `bench` warns on a machine that is slow, or busy with other tests.
WARNING = re.compile(r"^The client was the limit\..*\n?", re.MULTILINE)


def read_guide(name: str) -> Guide:
    """Return the files and commands of a guide, without those that need a cluster.

    Raise AssertionError if a command has no output.
    """
    guide = read_text((GUIDES / f"{name}.md").read_text())
    listed = LISTED.get(f"docs/guides/{name}.md", [])
    guide.parts = [
        part
        for part in guide.parts
        if not (isinstance(part, Step) and {*part.commands} <= {*listed})
    ]
    assert all(step.output for step in guide.steps), f"{name}: a command has no output"
    return guide


def local_addresses(*others: str) -> dict[str, str]:
    """Return a free address for each address of a page: those of the service, and `others`."""
    addresses = [REST, GRPC, *others]
    actual = {
        address: f"127.0.0.1:{port}"
        for address, port in zip(addresses, free_ports(len(addresses)), strict=True)
    }
    names = {address.replace("127.0.0.1", "localhost"): there for address, there in actual.items()}
    return actual | {name: there.replace("127.0.0.1", "localhost") for name, there in names.items()}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def make_folder(guide: Guide, folder: Path, project: Path, actual: Mapping[str, str]) -> Path:
    """Write the files of a page into a copy of the project. `actual` replaces texts of the page."""
    shutil.copytree(project, folder, symlinks=True, dirs_exist_ok=True)
    for name, content in guide.files.items():
        write_file(folder, name, content, actual)
    return folder


def write_file(folder: Path, name: str, content: str, actual: Mapping[str, str]) -> None:
    path = folder / replaced(name, actual)
    assert path.is_relative_to(folder), path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(replaced(content, actual))


@dataclass
class Session:
    """The directory, variables and service of a page that runs.

    `listed` has the commands that are not executed. With `only_status`, an output that is not on the page is permitted.
    """

    folder: Path
    actual: Mapping[str, str]
    listed: Collection[str] = ()
    only_status: bool = False
    then: Callable[[], AbstractContextManager[Any]] = nullcontext
    variables: dict[str, str] = field(default_factory=dict)
    exit_stack: ExitStack = field(default_factory=ExitStack)
    service: Running | None = None

    def run(self, guide: Guide) -> None:
        """Write the files, run the commands and wait for the lines of the log of a page, in its order."""
        with self.exit_stack:
            for part in guide.parts:
                if isinstance(part, Step):
                    self.run_step(part)
                elif isinstance(part, Log):
                    assert self.service, (
                        "the page shows lines of the log before it starts the service"
                    )
                    wait_for_lines(self.service, replaced(part.lines, self.actual))
                else:
                    write_file(self.folder, part.name, part.content, self.actual)

    def run_step(self, step: Step) -> None:
        """Run the commands of a block. The output is that of the last command, or of the commands after a start."""
        executed = [command for command in step.commands if command not in self.listed]
        output = None
        for is_start, commands in groupby(
            executed, lambda command: STARTS_SERVICE.search(command) is not None
        ):
            if is_start:
                for command in commands:
                    self.serve(command, step.output if command == executed[-1] else "")
                output = None
            else:
                output = self.run_commands("\n".join(commands))
        if output is not None and (step.output or not self.only_status):
            check_output(step, output)

    def run_commands(self, commands: str) -> str:
        """Return the output of the commands, with the texts that the page has."""
        if CREATES_PROJECT.search(commands):
            return self.create_project(commands)
        return run_command(commands, self.folder, self.actual, **self.environment())

    def create_project(self, commands: str) -> str:
        """Run cookiecutter with an empty line for each prompt, and continue in the new project."""
        before = {*self.folder.glob("*/app"), *self.folder.parent.glob("*/app")}
        create = CREATES_PROJECT.sub("cookiecutter ", commands).replace("TEMPLATE_URL", f"'{ROOT}'")
        output = run_command(
            create, self.folder, self.actual, "\n" * 20, HOME=str(self.folder), **self.environment()
        )
        (app_folder,) = {*self.folder.glob("*/app"), *self.folder.parent.glob("*/app")} - before
        self.folder = app_folder.parent
        link_packages(self.folder)
        return output

    def environment(self) -> dict[str, str]:
        """Return the variables of a command: few workers, the free ports, and the tools of the project first."""
        ports = {"HTTP_PORT": port_of(self.actual[REST]), "GRPC_PORT": port_of(self.actual[GRPC])}
        fixed = {
            "HOST": "127.0.0.1",
            "SHUTDOWN_DELAY_SECONDS": 0,
            "WORKERS": 1,
            "PYTHONPATH": "",
            "MAKEFLAGS": "",
        }
        path = os.pathsep.join(
            [str(self.folder / ".venv/bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        given = {**ports, **fixed, **LOCAL, "PATH": path, **self.variables}
        return {name: str(value) for name, value in given.items()}

    def serve(self, command: str, lines: str) -> None:
        """Start the service, which stops at the next start or at the end. It then has printed the lines."""
        self.exit_stack.close()
        words = [
            "bash",
            "-c",
            f"exec env {replaced(command, self.actual)}",
        ]  # the service gets SIGTERM, not bash
        several_workers = SEVERAL_WORKERS.search(command)

        # A worker that is still starting could import a file of the page's next step.
        def are_all_ready(service: Running) -> bool:
            if several_workers:
                return service.workers_ready() == int(several_workers[1])
            return is_ready(service)

        self.service = self.exit_stack.enter_context(
            started(words, self.folder, self.environment(), are_all_ready)
        )
        self.exit_stack.enter_context(printed(self.service, replaced(lines, self.actual)))
        self.exit_stack.enter_context(self.then())


def run_guide(
    guide: Guide,
    folder: Path,
    actual: Mapping[str, str],
    then: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Run all commands of a page in order, and enter the context `then()` after the start of the service."""
    Session(folder, actual, then=then).run(guide)


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


def is_ready(service: Running) -> bool:
    """Return true if the service has logged that it is ready. With TLS, a request over HTTP gets no response."""
    return (
        service.ready()
        or re.search(r"^(?!.*Worker \d).* is ready", service.log(), re.MULTILINE) is not None
    )


@contextmanager
def printed(service: Running, lines: str) -> Iterator[None]:
    """Wait at the end until the service has printed the lines."""
    yield
    wait_for_lines(service, lines)


def wait_for_lines(service: Running, lines: str) -> None:
    """Wait until the service has printed each of the lines, which may have a time in front."""
    for line in lines.splitlines():
        wait_for_line(service, line)


def wait_for_line(service: Running, line: str) -> None:
    expected = re.compile(pattern(line.strip()))
    try:
        wait_for(lambda: expected.search(without_varying(service.log())) is not None)
    except AssertionError as error:
        error.add_note(f"The service has not printed {line!r}, but:\n{service.log()}")
        raise


def check_output(step: Step, output: str) -> None:
    if step.language == "json":
        assert json.loads(output) == json.loads(step.output), output
    else:
        lines = "\n".join(
            line.rstrip() for line in WARNING.sub("", output).strip("\n").splitlines()
        )
        assert re.fullmatch(pattern(step.output.strip("\n")), without_varying(lines), re.DOTALL), (
            output
        )


def pattern(output: str) -> str:
    """Return a regular expression for an output, in which `…` stands for any text."""
    return ".*".join(map(re.escape, without_varying(output).split("…")))


def without_varying(text: str) -> str:
    return VARYING.sub("0", text)


def run_command(
    command: str, folder: Path, actual: Mapping[str, str], typed: str = "", **variables: str
) -> str:
    """Return the output of a command, with the texts that the page has."""
    command = re.sub(r"(?<!\w)curl ", "curl --silent --show-error ", replaced(command, actual))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, **LOCAL, "MAKEFLAGS": "", "MAKELEVEL": "0", "ARGS": "", **variables},
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}"
    return replaced(done.stdout, {there: here for here, there in actual.items()})


def replaced(text: str, actual: Mapping[str, str]) -> str:
    """Replace each text of `actual`, the longest first. A port is not replaced at the beginning of a longer number."""
    longest_first = sorted(actual, key=len, reverse=True)
    address_pattern = re.compile(
        "|".join(rf"{re.escape(address)}(?!\d)" for address in longest_first)
    )
    return address_pattern.sub(lambda match: actual[match[0]], text) if actual else text
