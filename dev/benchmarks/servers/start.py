"""Start all servers on one CPU core, and suspend those that are not measured."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from app.config.settings import read_settings
from tests.kit.environments import (
    ROOT,
    make_clients,
    make_environment,
    make_mlserver,
    make_triton,
    version_in,
)
from tests.kit.processes import Running, free_ports, started

MIB = 2**20
PAGE = resource.getpagesize()
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PRESENT_OF_FILE = 0b101  # bits 63, 62 and 61 of a page's entry: present, swapped out, file-backed
# A server is idle if it uses less than this share of a CPU core for IDLE_SECONDS.
IDLE_SHARE = 0.1
IDLE_SECONDS = 0.2
MAX_BUSY_SECONDS = 30
settings = read_settings()


@dataclass
class Server:
    """A running server: name in the results, startup time and idle memory."""

    name: str
    running: Running
    ready_seconds: float
    idle_mib: float

    @contextmanager
    def awake(self) -> Iterator[Running]:
        """Resume the server for the duration of the block. Otherwise, it is suspended."""
        send_signal(self.running.process.pid, signal.SIGCONT)
        try:
            yield self.running
        finally:
            wait_until_idle(self.running.process.pid)
            send_signal(self.running.process.pid, signal.SIGSTOP)


@dataclass(frozen=True)
class Recipe:
    """The command that starts a server with the models. {http} and {grpc} stand for its ports."""

    name: str
    command: str
    models: tuple[str, ...]
    transports: tuple[str, ...] = ("http", "grpc")
    make_python: Callable[[], Path] = lambda: Path(sys.executable)
    package: str = ""  # set for a peer
    ready_path: str = "/v2/health/ready"


def make_bentoml() -> Path:
    """Return the Python of .venv-bentoml."""
    return make_environment("bentoml", Path(__file__).parent / "bentoml" / "requirements.txt")


# Each server starts as its documentation describes, with one worker. Settings are changed if that is faster.
# The idle memory of a server is that of its first recipe, so recipes that need pandas come later.
OURS = [
    Recipe("this service", f"-m gunicorn dev.benchmarks.servers.ours:{model}()", (model,))
    for model in ("linear", "echo", "frame")
]
BARE = [
    Recipe(
        "bare",
        f"-m gunicorn --config /dev/null --worker-class gthread --threads 4 --keep-alive {settings.keepalive_seconds} "
        "--no-control-socket --bind 127.0.0.1:{http} dev.benchmarks.servers.bare:flask_app()",
        ("linear", "echo", "frame"),
        ("http",),
    ),
    Recipe("bare", "-m dev.benchmarks.servers.bare", ("linear", "echo"), ("grpc",)),
]  # fmt: skip
PEERS = [
    Recipe(
        "MLServer",
        "-m mlserver.cli.main start dev/benchmarks/servers/mlserver",
        ("linear", "echo", "frame"),
        make_python=make_mlserver,
        package="mlserver",
    ),
    Recipe(
        "KServe",
        "-m dev.benchmarks.servers.kserve_models --http_port {http} --grpc_port {grpc} --enable_latency_logging false "
        "--grpc_max_send_message_length 67108864 --grpc_max_receive_message_length 67108864 "
        "--log_config_file dev/benchmarks/servers/kserve_log.yaml",
        ("linear", "echo", "frame"),
        make_python=make_clients,
        package="kserve",
    ),
    Recipe(
        "Triton",
        "-m dev.benchmarks.servers.triton {http} {grpc}",
        ("linear", "echo"),
        make_python=make_triton,
        package="nvidia-pytriton",
    ),
    Recipe(
        "Triton",
        "-m dev.benchmarks.servers.triton {http} {grpc} dev/benchmarks/servers/triton/frames",
        ("frame",),
        make_python=make_triton,
        package="nvidia-pytriton",
    ),
    Recipe(
        "BentoML",
        "-m bentoml serve dev.benchmarks.servers.bentoml.service:Models --host 127.0.0.1 --port {http}",
        ("linear", "echo"),
        ("http",),
        make_python=make_bentoml,
        package="bentoml",
        ready_path="/readyz",
    ),
    Recipe(
        "BentoML",
        "-m bentoml serve dev.benchmarks.servers.bentoml.frames:Frames --host 127.0.0.1 --port {http}",
        ("frame",),
        ("http",),
        make_python=make_bentoml,
        package="bentoml",
        ready_path="/readyz",
    ),
]  # fmt: skip


def find_recipes(cpu: int) -> list[Recipe]:
    """Start each server once. Return the recipes without peers that cannot be installed or started.

    The first start in a new environment also writes bytecode. Later start times are comparable.
    """
    found = []
    for recipe in [*OURS, *BARE, *PEERS]:
        try:
            with start(recipe, cpu):
                found.append(recipe)
        except (AssertionError, pytest.fail.Exception) as error:
            if recipe not in PEERS:
                raise
            click.echo(
                f"{recipe.name} is not measured: {str(error).strip().splitlines()[-1].strip()}"
            )
    return found


def start_alone(recipes: Sequence[Recipe], cpu: int) -> Iterator[Server]:
    """Yield each server while no other server runs, because they could share memory."""
    names = set()
    for recipe in recipes:
        if recipe.name not in names and "http" in recipe.transports:
            names.add(recipe.name)
            with start(recipe, cpu) as server:
                yield server


def start_all(
    stack: ExitStack, recipes: Sequence[Recipe], cpu: int
) -> dict[tuple[str, str, str], Server]:
    """Return all servers by name, transport and model. They are suspended."""
    found: dict[tuple[str, str, str], Server] = {}
    for recipe in recipes:
        server = stack.enter_context(start(recipe, cpu))
        for transport in recipe.transports:
            found |= {(recipe.name, transport, model): server for model in recipe.models}
    return found


def versions(recipes: Sequence[Recipe]) -> str:
    """Return the versions of this service's dependencies and of the peers."""
    found = {name: version(name) for name in ("flask", "gunicorn", "grpcio")}
    for recipe in recipes:
        if recipe.package:
            found[recipe.package] = version_in(recipe.make_python(), recipe.package)
    return ", ".join(" ".join(each) for each in found.items())


@contextmanager
def start(recipe: Recipe, cpu: int) -> Iterator[Server]:
    python = recipe.make_python()
    http, grpc = free_ports(2)
    words = recipe.command.format(http=http, grpc=grpc).split()
    ports = {
        f"{owner}{name}_PORT": port
        for owner in ("", "MLSERVER_")
        for name, port in (("HTTP", http), ("GRPC", grpc))
    }
    environment: dict[str, Any] = {
        "PYTHONPATH": ROOT,
        "HOST": "127.0.0.1",
        "WORKERS": 1,
        "SHUTDOWN_DELAY_SECONDS": 0,
        **ports,
    }
    environment["MLSERVER_METRICS_PORT"] = free_ports(1)[0]
    environment["BENTOML_HOME"] = ROOT / ".venv-bentoml" / "home"  # default: in the home directory
    environment["BENTOML_DO_NOT_TRACK"] = True  # disable usage data
    environment["PYTHONDONTWRITEBYTECODE"] = ""  # write bytecode for later starts
    environment["LOG_LEVEL"] = "WARNING"  # like the other servers
    environment["GUNICORN_CMD_ARGS"] = "--timeout 0"  # gunicorn must not replace a suspended worker

    def is_ready(running: Running) -> bool:
        return (
            running.get(recipe.ready_path) is not None
            if "http" in recipe.transports
            else listens(running)
        )

    begun = time.perf_counter()
    with started(
        ["taskset", "-c", str(cpu), python, *words], ROOT, environment, is_ready
    ) as running:
        seconds = time.perf_counter() - begun
        server = Server(recipe.name, running, seconds, memory(running.process.pid))
        send_signal(running.process.pid, signal.SIGSTOP)
        try:
            yield server
        finally:
            send_signal(running.process.pid, signal.SIGCONT)


def listens(running: Running) -> bool:
    try:
        socket.create_connection(("127.0.0.1", running.grpc_port), timeout=1).close()
        return True
    except OSError:
        return False


def processes(server: int) -> list[int]:
    """Return the PIDs of a server and all its descendants, which can be in separate process groups."""
    found = [server]
    for pid in found:  # the list grows in the loop
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # the thread has exited
                found += map(int, children.read_text().split())
    return found


def send_signal(server: int, number: signal.Signals) -> None:
    for pid in processes(server):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_until_idle(server: int) -> None:
    """Wait until a server uses almost no CPU time, but at most MAX_BUSY_SECONDS.

    wrk and h2load end a measurement without waiting for the last responses, so the server still
    handles requests. Triton must not be suspended then. Its Python backend expects a sign of life
    from a model's process if a request takes a second, and the suspension counts as time. It can
    then consider the process dead and start it again, and Triton loses requests or crashes.
    """
    deadline = time.monotonic() + MAX_BUSY_SECONDS
    used = cpu_seconds(server)
    while time.monotonic() < deadline:
        time.sleep(IDLE_SECONDS)
        used_before = used
        used = cpu_seconds(server)
        if used - used_before < IDLE_SHARE * IDLE_SECONDS:
            return


def memory(server: int) -> float:
    """Return the memory of a server's processes in MiB. Count shared pages once.

    PSS would assign half of this service's libraries to the benchmark, which also loads them.
    """
    anonymous, pages = 0, set[tuple[str, int]]()
    for folder in (Path(f"/proc/{pid}") for pid in processes(server)):
        with suppress(OSError):  # the process has exited
            rollup = (folder / "smaps_rollup").read_text()
            anonymous += 1024 * int(rollup.split("Pss_Anon:")[1].split()[0])
            pages |= file_pages(folder)
    return (anonymous + len(pages) * PAGE) / MIB


def cpu_seconds(server: int) -> float:
    """Return the CPU time of a server's processes in seconds."""
    ticks = 0
    for pid in processes(server):
        with suppress(OSError):  # the process has exited
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime and stime
    return ticks / TICKS_PER_SECOND


def file_pages(folder: Path) -> set[tuple[str, int]]:
    """Return the unmodified file-backed pages of a process (proc(5): maps, pagemap)."""
    found = set()
    with (folder / "pagemap").open("rb") as pagemap:
        for line in (folder / "maps").read_text().splitlines():
            span, _, offset, *file = line.split(maxsplit=5)
            begin, end = (int(each, 16) // PAGE for each in span.split("-"))
            if file[1] != "0":
                pagemap.seek(begin * 8)
                states = np.frombuffer(pagemap.read((end - begin) * 8), np.uint64) >> np.uint64(61)
                first = int(offset, 16) // PAGE
                found |= {
                    (str(file[:2]), first + int(page))
                    for page in np.flatnonzero(states == PRESENT_OF_FILE)
                }
    return found
