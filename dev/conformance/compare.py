"""Test this service and other servers from PyPI against the rules. Write the results and docs/conformance.md.

    python -m dev.conformance.compare [NAME ...]

By default, all servers are tested. The results are in dev/conformance/results.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from dev.conformance.tables import RESULTS, summarize, write_page
from tests.kit.environments import ROOT, make_clients, make_mlserver, make_triton, version_in
from tests.kit.processes import Running, free_ports, started

LIMIT = 2**20
SHARED_MEMORY = re.compile(r"/dev/shm/\S+")  # noqa: S108


@dataclass
class Server:
    """The command and environment to start a server, with a request limit of LIMIT bytes if it supports one.

    The command contains {http} and {grpc} if the environment does not set the ports.
    """

    title: str
    command: str
    package: str = ""
    make_python: Callable[[], Path] = lambda: Path(sys.executable)
    environment: dict[str, Any] = field(default_factory=dict)
    has_limit: bool = True


SERVERS = {
    "service": Server(
        "this service",
        "-m gunicorn tests.conformance_model:create_service()",
        environment={"HOST": "127.0.0.1", "MAX_REQUEST_BYTES": LIMIT},
    ),
    "mlserver": Server(
        "MLServer",
        "-m mlserver.cli.main start dev/conformance/servers/mlserver",
        package="mlserver",
        make_python=make_mlserver,
        environment={"MLSERVER_GRPC_MAX_MESSAGE_LENGTH": LIMIT},
    ),
    "kserve": Server(
        "KServe",
        "-m dev.conformance.servers.kserve_model --http_port {http} --grpc_port {grpc} "
        f"--grpc_max_receive_message_length {LIMIT}",
        package="kserve",
        make_python=make_clients,
    ),
    "triton": Server(
        "Triton",
        "-m dev.benchmarks.servers.triton {http} {grpc} dev/conformance/servers/triton",
        package="nvidia-pytriton",
        make_python=make_triton,
        has_limit=False,
    ),
}


class Process:
    """A process of the server that can be restarted on the same ports."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        http, grpc = free_ports(2)
        self.command: list[str | Path] = [
            server.make_python(),
            *server.command.format(http=http, grpc=grpc).split(),
        ]
        ports = {
            f"{prefix}{name}_PORT": port
            for prefix in ("", "MLSERVER_")
            for name, port in (("HTTP", http), ("GRPC", grpc))
        }
        # The other servers do not have the suite in their environments. Its model needs no packages.
        path = os.pathsep.join([str(ROOT), str(ROOT / "conformance")])
        self.environment = {"PYTHONPATH": path, **ports, **server.environment}
        self.stack = stack
        self.running: Running
        self.shared_memory: set[str] = set()
        self.start()

    def start(self) -> None:
        self.running = self.stack.enter_context(started(self.command, ROOT, self.environment))
        maps = Path(f"/proc/{self.running.process.pid}/maps").read_text()
        self.shared_memory = set(SHARED_MEMORY.findall(maps))

    def restart(self, *_: Any) -> None:
        """Kill all processes of the server, remove their shared memory, and start the server."""
        with suppress(ProcessLookupError):
            os.killpg(self.running.process.pid, signal.SIGKILL)
        self.stack.close()
        for path in self.shared_memory:
            Path(path).unlink(missing_ok=True)
        self.start()


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(list(SERVERS)))
def main(names: tuple[str, ...]) -> None:
    """Test this service and other servers against the rules, and write docs/conformance.md.

    NAME selects servers. By default, all servers are tested.
    """
    for name in names or SERVERS:
        server = SERVERS[name]
        click.echo(f"\n{server.title}")
        package = (
            f"{server.package} {version_in(server.make_python(), server.package)}"
            if server.package
            else ""
        )
        result = summarize(server.title, package, report_of(server))
        (RESULTS / f"{name}.json").write_text(
            json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        )
    write_page()


def report_of(server: Server) -> dict[str, Any]:
    """Run the suite, and return its JSON report. This process restarts the server on SIGHUP."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        process = Process(server, stack)
        signal.signal(signal.SIGHUP, process.restart)
        path = Path(folder) / "cases.json"
        addresses = [
            "--http",
            f"http://{process.running.http_address}",
            "--grpc",
            process.running.grpc_address,
        ]
        limit = ["--limit", str(LIMIT)] if server.has_limit else []
        restart = (
            f"kill -HUP {os.getpid()} && sleep 1"  # until this process has received the signal
        )
        options = [*addresses, *limit, "--restart", restart, "--json", str(path)]
        subprocess.run([sys.executable, "-m", "oip_conformance", *options], cwd=ROOT, check=False)
        report: dict[str, Any] = json.loads(path.read_text())
    if not report["complete"]:
        raise click.ClickException(f"{server.title}: the server ended before the run was complete")
    return report


if __name__ == "__main__":
    main(prog_name="python -m dev.conformance.compare")
