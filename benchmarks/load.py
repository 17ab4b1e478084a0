"""The load generators: wrk for REST, h2load for gRPC, each with connections that always wait for an answer."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks.cases import Case

WARM_UP_SECONDS = 1
SCRIPT = Path(__file__).with_name("wrk.lua")
PACKAGES = {"wrk": "wrk", "h2load": "nghttp2-client", "taskset": "util-linux"}


@dataclass(frozen=True)
class Row:
    """One measurement: requests a second, and the median and 99th percentile of the time to an answer, in ms."""

    rate: float
    p50: float
    p99: float
    failed: int


def check_tools() -> None:
    if missing := [package for tool, package in PACKAGES.items() if not shutil.which(tool)]:
        raise click.ClickException(f"what drives the servers is missing: apt-get install {' '.join(missing)}")


def measure(case: Case, http: str, grpc: str, seconds: int, connections: int, cpus: Sequence[int]) -> Row:
    """Drives one case against the server at the two addresses, from the processors `cpus`."""
    pinned = ["taskset", "-c", ",".join(map(str, cpus))]
    with tempfile.TemporaryDirectory() as folder:
        if case.transport == "http":
            return wrk(case, http, seconds, connections, pinned, Path(folder))
        return h2load(case, grpc, seconds, connections, pinned, Path(folder))


def wrk(case: Case, address: str, seconds: int, connections: int, pinned: list[str], folder: Path) -> Row:
    (folder / "body").write_bytes(case.body)
    options = [option for name, value in case.headers.items() for option in ("-H", f"{name}: {value}")]
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
    said = run([*command, f"http://{address}{case.path}", "--", str(folder / "body")])
    rate, p50, p99, failed = re.findall(r"^row (\S+) (\S+) (\S+) (\S+)$", said, re.MULTILINE)[0]
    return Row(float(rate), float(p50), float(p99), int(failed))


def h2load(case: Case, address: str, seconds: int, connections: int, pinned: list[str], folder: Path) -> Row:
    body, log = folder / "body", folder / "log"
    body.write_bytes(b"\0" + len(case.body).to_bytes(4, "big") + case.body)
    options = ["-t1", f"-c{connections}", "-m1", f"-D{seconds}", "-d", str(body), f"--log-file={log}"]
    options += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    said = run([*pinned, "h2load", *options, f"http://{address}{case.path}"])
    # Each line: when the request was sent, its status, and how long it took, in µs.
    if not log.read_bytes():
        return Row(0, seconds * 1000, seconds * 1000, 1)
    status, micros = np.loadtxt(log, int, usecols=(1, 2), ndmin=2).T
    p50, p99 = np.percentile(micros, [50, 99]) / 1000
    rate = float(re.findall(r"([\d.]+) req/s", said)[0])
    return Row(rate, float(p50), float(p99), int((status != 200).sum()))


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout
