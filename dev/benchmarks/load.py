"""Load generators: wrk for REST and h2load for gRPC. Each connection has one request in flight."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from dev.benchmarks.cases import Case
from dev.benchmarks.requests import send_request
from dev.benchmarks.servers.start import cpu_seconds
from tests.kit.processes import Running

WARM_UP_SECONDS = 1
MESSAGE_PREFIX_BYTES = 5  # of gRPC: whether the message is compressed, and its length
SCRIPT = Path(__file__).with_name("wrk.lua")
PACKAGES = {"wrk": "wrk", "h2load": "nghttp2-client", "taskset": "util-linux"}


@dataclass(frozen=True)
class Row:
    """One measurement: requests per second, latency in ms, and CPU time of the server per request in µs."""

    rate: float
    p50: float
    p99: float
    failed: int
    cpu: float = 0.0


def check_tools() -> None:
    missing = [package for tool, package in PACKAGES.items() if not shutil.which(tool)]
    if missing:
        raise click.ClickException(f"Missing tools. Run: apt-get install {' '.join(missing)}")


def find_cpus() -> list[int]:
    """Return the CPU cores that this process may use, at least two: for the server, and for the load."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise click.ClickException(
            "Too few CPU cores: 1. The servers need one, and the load generators need another."
        )
    return cpus


def measure(
    case: Case, server: Running, seconds: int, connections: int, cpus: Sequence[int]
) -> Row:
    """Run the load generator for a case on the CPU cores `cpus`."""
    pinned = ["taskset", "-c", ",".join(map(str, cpus))]

    # Fail now if the server rejects the request. h2load() also needs the length of the message.
    message, _ = send_request(case, server)

    before = cpu_seconds(server.process.pid)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if case.transport == "http":
            row = wrk(case, server.http_address, seconds, connections, pinned, folder)
        else:
            row = h2load(
                case,
                server.grpc_address,
                seconds,
                connections,
                pinned,
                folder,
                message_length=len(message),
            )
    used = cpu_seconds(server.process.pid) - before
    return replace(row, cpu=used / max(row.rate * seconds, 1) * 1e6)


def wrk(
    case: Case, address: str, seconds: int, connections: int, pinned: list[str], folder: Path
) -> Row:
    """Run wrk with the script wrk.lua, which prints the figures in a line of its own."""
    (folder / "body").write_bytes(case.body)
    options = [
        option for name, value in case.headers.items() for option in ("-H", f"{name}: {value}")
    ]
    command = [
        *pinned,
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "30s",
        "-s",
        str(SCRIPT),
        *options,
    ]
    scheme = "https" if case.is_secure else "http"
    arguments = [str(folder / "body")]
    if case.has_tracing_headers:
        arguments.append("tracing")
    output = run([*command, f"{scheme}://{address}{case.path}", "--", *arguments])
    rate, p50, p99, failed = re.findall(r"^row (\S+) (\S+) (\S+) (\S+)$", output, re.MULTILINE)[0]
    return Row(float(rate), float(p50), float(p99), int(failed))


def h2load(
    case: Case,
    address: str,
    seconds: int,
    connections: int,
    pinned: list[str],
    folder: Path,
    message_length: int,
) -> Row:
    """Run h2load. Each successful response contains a message of `message_length` bytes.

    h2load reports the HTTP status, which is 200 for a gRPC error, too. But such a response contains
    no message. The number of successful responses is therefore that of the received bytes, divided
    by the bytes per message. The received bytes include parts of messages that were on their way at
    the end, so the number of failed requests can be too low by the number of connections.
    """
    body = folder / "body"
    log = folder / "log"
    body.write_bytes(b"\0" + len(case.body).to_bytes(4, "big") + case.body)
    options = [
        "-t1",
        f"-c{connections}",
        "-m1",
        f"-D{seconds}",
        "-d",
        str(body),
        f"--log-file={log}",
    ]
    options += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    output = run([*pinned, "h2load", *options, f"http://{address}{case.path}"])
    if not log.read_bytes():
        # No request was completed, so the latency is at least that of the measurement.
        milliseconds = seconds * 1000
        return Row(rate=0, p50=milliseconds, p99=milliseconds, failed=1)
    # Each line contains the time of the request, its status and its latency in µs.
    status, micros = np.loadtxt(log, int, usecols=(1, 2), ndmin=2).T
    p50, p99 = np.percentile(micros, [50, 99]) / 1000
    rate = float(re.findall(r"([\d.]+) req/s", output)[0])
    data_bytes = int(re.findall(r"\((\d+)\) data", output)[0])
    succeeded = data_bytes // (MESSAGE_PREFIX_BYTES + message_length)
    failed = max(int((status != 200).sum()), len(status) - succeeded)
    return Row(rate, float(p50), float(p99), failed)


def run(command: list[str]) -> str:
    """Run the command and return its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout
