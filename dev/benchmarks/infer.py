"""Comparison of the infer command with MLServer's, with the same model, rows and machine: python -m dev.benchmarks.infer"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import orjson

from dev.benchmarks.report import OURS, RESULTS, markdown, measured_on, stamp
from dev.benchmarks.servers import models
from dev.benchmarks.servers.start import Recipe, Server, make_mlserver, start, versions
from tests.kit.environments import LOCAL, ROOT
from tests.kit.processes import Running

COLUMNS = 10
BATCH, IN_FLIGHT = 4096, 4
GOAL = 5
BINARY = "mlserver infer, 4,096 rows per line, --binary-data"
SERVERS = [
    Recipe(OURS, "-m gunicorn dev.benchmarks.servers.ours:sums()", ("sums",)),
    Recipe(
        "MLServer",
        "-m mlserver.cli.main start dev/benchmarks/servers/mlserver",
        ("sums",),
        make_python=make_mlserver,
        package="mlserver",
    ),
]


ABOUT = """{measured_on} Versions: {versions}.

The model adds up {columns} FP32 columns of each row. The time is that of the whole process, which reads and writes a
file. Each command has {in_flight} requests of {batch} rows in flight. The server runs on one CPU core, the client on
the other.

`mlserver infer` reads a file with one request per line. A request has one row, which the command joins to batches, or
{batch} rows. Single rows were measured with a shorter file. Its option `--binary-data`, which its help calls not fully
supported, needs a server with the binary tensor extension. MLServer does not have it.

{table}

`infer` is {ratio:.1f} times as fast as the fastest run of `mlserver infer` without `--binary-data`, and
{ratio_binary:.1f} times as fast as with it.
"""


@dataclass(frozen=True)
class Client:
    """A command to measure. It processes 1/`part` of all rows."""

    name: str
    source: str
    words: Callable[[Running, Path, Path], list[Any]]
    read: Callable[[Path], np.ndarray]
    part: int = 1
    servers: tuple[str, ...] = (OURS, "MLServer")


def ours(running: Running, source: Path, out: Path) -> list[Any]:
    return infer(f"http://{running.http}", source, out)


def ours_grpc(running: Running, source: Path, out: Path) -> list[Any]:
    return [*infer(f"grpc://{running.grpc}", source, out), "--transport", "grpc"]


def infer(url: str, source: Path, out: Path) -> list[Any]:
    options = ["--url", url, "--model", "sums", "--batch-size", BATCH, "--concurrency", IN_FLIGHT]
    return [sys.executable, "-m", "app", "infer", source, "--output", out, *options]


def theirs(batch: int, *more: str) -> Callable[[Running, Path, Path], list[Any]]:
    def words(running: Running, source: Path, out: Path) -> list[Any]:
        files = [
            "--input-data-path",
            source,
            "--output-data-path",
            out,
            "--workers",
            IN_FLIGHT,
            "--batch-size",
            batch,
        ]
        command = [
            make_mlserver().parent / "mlserver",
            "infer",
            "--url",
            running.http,
            "--model-name",
            "sums",
        ]
        return [*command, *files, *more]

    return words


def read_csv(path: Path) -> np.ndarray:
    return np.loadtxt(path, np.float32, skiprows=1)


def read_answers(path: Path) -> np.ndarray:
    """Return the outputs in the order of the requests. MLServer writes responses in the order of arrival."""
    answers = sorted(
        map(orjson.loads, path.open("rb")), key=lambda each: each["parameters"]["batch_index"]
    )
    return np.concatenate([np.asarray(each["outputs"][0]["data"], np.float32) for each in answers])


CLIENTS = [
    Client("infer, CSV, REST", "rows.csv", ours, read_csv, servers=(OURS,)),
    Client("infer, CSV, gRPC", "rows.csv", ours_grpc, read_csv),
    Client("mlserver infer, 4,096 rows per line", "batches.jsonl", theirs(1), read_answers),
    Client(BINARY, "batches.jsonl", theirs(1, "--binary-data"), read_answers, servers=(OURS,)),
    Client("mlserver infer, one row per line", "rows.jsonl", theirs(BATCH), read_answers, part=20),
]


def write_files(folder: Path, x: np.ndarray) -> None:
    """Write the same rows as CSV and as request lines with one row or one batch each."""
    digits = (orjson.dumps(piece, option=orjson.OPT_SERIALIZE_NUMPY)[2:-2] for piece in cut(x))
    names = ",".join(f"x{index}" for index in range(COLUMNS)).encode()
    with (folder / "rows.csv").open("wb") as file:
        file.write(names + b"\n")
        file.writelines(each.replace(b"],[", b"\n") + b"\n" for each in digits)
    with (folder / "batches.jsonl").open("wb") as file:
        file.writelines(map(request_line, cut(x)))
    with (folder / "rows.jsonl").open("wb") as file:
        file.writelines(request_line(row[None]) for row in x)


def cut(x: np.ndarray) -> Iterator[np.ndarray]:
    return (x[start : start + BATCH] for start in range(0, len(x), BATCH))


def request_line(x: np.ndarray) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.reshape(-1)}
    return orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"


def measure(
    client: Client, server: Server, folder: Path, x: np.ndarray, cpu: int
) -> dict[str, Any]:
    """Measure a run from the start to the exit of the process, and check the results."""
    rows = len(x) // client.part
    source, out = folder / client.source, folder / "out.csv"
    if client.part > 1:
        source = folder / f"part-{client.source}"
        with (folder / client.source).open("rb") as file:
            source.write_bytes(b"".join(next(file) for _ in range(rows)))
    with server.awake() as running:
        words = client.words(running, source, out)
        begun, used = time.perf_counter(), processor_time()
        done = subprocess.run(
            ["taskset", "-c", str(cpu), *map(str, words)],
            cwd=ROOT,
            env={**os.environ, **LOCAL, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        seconds, used = time.perf_counter() - begun, processor_time() - used
    if done.returncode:
        raise click.ClickException(
            f"{client.name}: exited with {done.returncode}: {done.stdout}{done.stderr}"
        )
    np.testing.assert_allclose(client.read(out), models.sums(x[:rows]), rtol=1e-4, atol=1e-4)
    out.unlink()
    found = {"client": client.name, "server": server.name, "rows": rows}
    return {**found, "seconds": seconds, "cpu": used, "rate": rows / seconds}


def processor_time() -> float:
    """Return the CPU time of terminated child processes in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=1_000_000, help=f"Number of rows with {COLUMNS} columns.")
@click.option("--rounds", default=3, help="Number of alternating measurements of each case.")
@click.option("--output", type=Path, default=RESULTS, help="Directory for infer.json and infer.md.")
def main(rows: int, rounds: int, output: Path) -> None:
    """Compare `infer` with MLServer's command, both with this service and with MLServer's server.

    The server runs on one CPU core and the client on another. The exit status is 1 if `infer` is
    less than five times as fast.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise click.ClickException(
            "two processors are needed: one for the server, one for the client"
        )
    x = np.random.default_rng(0).normal(size=(rows, COLUMNS)).astype(np.float32)
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder, x)
        for recipe in SERVERS:
            with start(recipe, cpus[0]) as server:
                turns = [client for client in CLIENTS if server.name in client.servers] * rounds
                with click.progressbar(
                    turns,
                    label=server.name,
                    item_show_func=lambda turn: turn.name if turn else None,
                ) as bar:
                    found += [measure(client, server, folder, x, cpus[1]) for client in bar]
    made = {**stamp(), "versions": versions(SERVERS), "columns": COLUMNS, "rows": found}
    made |= {"ratio": ratio(found, BINARY), "ratio_binary": ratio(found)}
    output.mkdir(exist_ok=True)
    (output / "infer.json").write_text(json.dumps(made, indent=1) + "\n")
    (output / "infer.md").write_text(page(made))
    click.echo(page(made))
    sys.exit(made["ratio"] < GOAL)


def rates(found: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Return the median rate by client and server."""
    keys = dict.fromkeys((row["client"], row["server"]) for row in found)
    return {
        key: median(row["rate"] for row in found if (row["client"], row["server"]) == key)
        for key in keys
    }


def ratio(found: list[dict[str, Any]], *left_out: str) -> float:
    """Return the rate of `infer` with default options relative to the fastest run of MLServer's command."""
    by_key = rates(found)
    theirs = max(
        rate
        for (client, _), rate in by_key.items()
        if client.startswith("mlserver") and client not in left_out
    )
    return by_key[CLIENTS[0].name, OURS] / theirs


def page(made: dict[str, Any]) -> str:
    found = made["rows"]
    mine = rates(found)[CLIENTS[0].name, OURS]
    lines = [["client", "server", "rows", "seconds", "CPU seconds", "rows/s", "ratio to `infer`"]]
    for (client, server), rate in rates(found).items():
        runs = [row for row in found if (row["client"], row["server"]) == (client, server)]
        seconds, cpu = (f"{median(row[key] for row in runs):.1f}" for key in ("seconds", "cpu"))
        lines.append(
            [
                client,
                server,
                f"{runs[0]['rows']:,}",
                seconds,
                cpu,
                f"{rate:,.0f}",
                f"{mine / rate:.1f}",
            ]
        )
    return ABOUT.format(
        **made,
        measured_on=measured_on(made),
        batch=BATCH,
        in_flight=IN_FLIGHT,
        table=markdown(lines),
    )


if __name__ == "__main__":
    main()
