"""The service in a separate gunicorn process, on free ports of 127.0.0.1."""

from __future__ import annotations

import http.client
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from oip_conformance.wires import Grpc

STOP_SECONDS = 180
WAIT_SECONDS = 180

# UDP sockets that reserve ports for this process, from the oldest to the newest, see free_ports().
# By the time that the oldest one is closed, its service has opened the port itself.
MAX_RESERVATIONS = 64
reservations: deque[socket.socket] = deque()


@dataclass
class Running:
    """A service that is ready. Its output is in a file, so that no full pipe can stop it.

    output: exists until the service has ended
    last_words: the complete output of a service that has ended
    """

    process: subprocess.Popen[bytes]
    http_port: int
    grpc_port: int
    output: Path
    last_words: str = ""

    @property
    def http_address(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def own_channel(self) -> grpc.Channel:
        """Return a channel with a connection that no other channel of this process shares."""
        return grpc.insecure_channel(self.grpc_address, [("grpc.use_local_subchannel_pool", 1)])

    def log(self) -> str:
        """Return the complete lines that the service has written so far, or all if it has ended."""
        if not self.output.exists():
            return self.last_words

        text = self.output.read_text(errors="replace")
        end_of_last_line = text.rfind("\n") + 1
        return text[:end_of_last_line]

    def ready(self) -> bool:
        """Return true if GET /v2/health/ready returns 200 now."""
        return self.get("/v2/health/ready") is not None

    def workers_ready(self) -> int:
        """Return the number of ready workers from the metrics, or 0 without this metric."""
        metrics = self.get("/metrics") or b""
        sample = re.search(rb"^inference_workers_ready (\d+)", metrics, re.MULTILINE)
        if sample is None:
            return 0
        return int(sample[1])

    def ready_count(self) -> int:
        """Return the number of workers that have ever been ready, from the log."""
        messages = re.findall(r"Worker \d+ is ready", self.log())
        return len(messages)

    def get(self, path: str) -> bytes | None:
        """Return the body of a response with status 200, or None otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status != 200:
                return None
            return response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def workers(service: Running) -> set[int]:
    """Return the PIDs of the service's workers, ready or not.

    Raise OSError if its master has exited. With children(), a test that waits until a worker has
    gone would also pass if the service crashed.
    """
    return _read_children(service.process.pid)


def children(pid: int) -> set[int]:
    """Return the running child processes of the main thread of `pid`, or none if it has exited."""
    try:
        return _read_children(pid)
    except OSError:
        return set()


def _read_children(pid: int) -> set[int]:
    """Return the child processes of the main thread of `pid`. Raise OSError if it has exited."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(child) for child in text.split()}


def resident(pid: int) -> int:
    """Return the resident memory of the process in bytes, or 0 if it has exited."""
    try:
        text = Path(f"/proc/{pid}/statm").read_text()
    except OSError:
        return 0

    # The first two numbers are the pages of all memory, and of the resident memory.
    pages = int(text.split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def reset_peak(pids: Collection[int]) -> int:
    """Set the peak memory of processes to their current memory, and return the sum in bytes."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pids)


def peak(pids: Collection[int]) -> int:
    """Return the sum of the peak memory of processes in bytes."""
    total = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        peak_line = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        assert peak_line, f"no peak memory in the status of {pid}:\n{status}"
        total += 1024 * int(peak_line[1])
    return total


@contextmanager
def gunicorn(
    folder: Path,
    app: str = "app:create_app()",
    *,
    python: str | Path = sys.executable,
    is_ready: Callable[[Running], bool] | None = None,
    **environment: Any,
) -> Iterator[Running]:
    """Run the service in `folder`, and yield it when all workers have logged that they are ready.

    `environment` has settings such as WORKERS=2. By default, there is one worker. The service gets
    SIGTERM at the end, stops without a drain, and must exit with status 0.
    """
    settings = local_settings(WORKERS=1) | environment
    worker_count = int(settings["WORKERS"] or 1)  # an empty variable counts as unset

    def are_workers_ready(running: Running) -> bool:
        # A probe can succeed a moment before the log message, which tests count.
        return running.ready() and running.ready_count() >= worker_count

    if is_ready is None:
        is_ready = are_workers_ready
    command = [python, "-m", "gunicorn", app]
    with started(command, folder, settings, is_ready) as running:
        yield running

    code = running.process.returncode
    assert code == 0, f"gunicorn exited with {code}:\n{running.log()}"


def local_settings(**settings: Any) -> dict[str, Any]:
    """Return settings for free ports of 127.0.0.1 and a stop without a drain, and `settings`."""
    http_port, grpc_port = free_ports(2)
    return {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http_port,
        "GRPC_PORT": grpc_port,
        "SHUTDOWN_DELAY_SECONDS": 0,
        **settings,
    }


@contextmanager
def started(
    command: Sequence[str | Path],
    folder: Path,
    environment: dict[str, Any],
    is_ready: Callable[[Running], bool] = Running.ready,
    ready_seconds: float = WAIT_SECONDS,
) -> Iterator[Running]:
    """Run `command` in `folder`, and yield its service when it is ready.

    The service gets SIGTERM at the end. `environment` is added to that of this process. It
    has the ports, as HTTP_PORT and GRPC_PORT.
    """
    arguments = [str(word) for word in command]
    variables = {name: str(value) for name, value in environment.items()}

    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "output.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # stop() can kill the group
            )
        running = Running(
            process,
            http_port=int(environment["HTTP_PORT"]),
            grpc_port=int(environment["GRPC_PORT"]),
            output=output,
        )
        try:
            wait_until_ready(running, is_ready, ready_seconds)
            yield running
        finally:
            stop(process)
            # The directory with the file is deleted next.
            running.last_words = running.log()


def wait_until_ready(running: Running, is_ready: Callable[[Running], bool], seconds: float) -> None:
    """Wait until `is_ready(running)` returns true.

    Fail with the log if the process exits, or after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not is_ready(running):
        code = running.process.poll()
        assert code is None, f"the server exited with {code} before it was ready:\n{running.log()}"
        assert time.monotonic() < deadline, (
            f"the server was not ready in {seconds} s:\n{running.log()}"
        )
        time.sleep(0.02)


def python_path(folder: Path) -> str:
    """Return a PYTHONPATH that starts with `folder`, so that Python imports its sitecustomize."""
    folders = [str(folder)]
    inherited_path = os.environ.get("PYTHONPATH")
    if inherited_path:
        folders.append(inherited_path)
    return os.pathsep.join(folders)


def wait_for(condition: Callable[[], bool], failure: str = "the condition was not met") -> None:
    """Wait until `condition()` returns true. Fail with the text `failure` after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{failure} in {WAIT_SECONDS} s"
        time.sleep(0.01)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM. If the process does not end within STOP_SECONDS, kill it and its workers."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_ports(count: int) -> list[int]:
    """Return `count` different ports of 127.0.0.1 that are free now.

    They are below the ephemeral ports: a client could take one of those before the service opens
    it. A UDP socket reserves each port until this process has asked for many others, so that
    another test process does not get it before the service opens it. The services use only TCP,
    which has ports of its own.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = 10_000 + secrets.randbelow(22_000)
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            with socket.socket() as probe:  # fails if a TCP server has the port
                reservation.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        reservations.append(reservation)
        ports.append(port)

    while len(reservations) > MAX_RESERVATIONS:
        reservations.popleft().close()
    return ports


def stop_other_master(master: int) -> None:
    """Stop a master that is not a child of this process, and wait until it has ended."""

    def has_master_ended() -> bool:
        return has_ended(master)

    os.kill(master, signal.SIGTERM)
    wait_for(has_master_ended, f"the master {master} did not end")


def has_ended(pid: int) -> bool:
    """Return True if the process does not run. It may not be a child of this process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True

    # A zombie has ended, but its parent has not read its exit status yet.
    return "\nState:\tZ" in status


@contextmanager
def standalone_grpc(root: Path) -> Iterator[Grpc]:
    """Run `python -m grpc_service` in `root`, and yield a client when it is ready.

    It gets SIGTERM at the end, and must exit with status 0.
    """
    (port,) = free_ports(1)
    environment = {**os.environ, "HOST": "127.0.0.1", "GRPC_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-m", "grpc_service"],
        cwd=root,
        env=environment,
        start_new_session=True,  # stop() can kill the group
    )
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(60)
            client = Grpc(channel)

            def is_ready() -> bool:
                return client.call("ServerReady").ready

            wait_for(is_ready, "the gRPC server was not ready")
            yield client
    finally:
        stop(process)
    assert process.returncode == 0
