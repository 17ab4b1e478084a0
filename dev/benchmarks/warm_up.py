"""First requests after readiness, with and without a warm-up: python -m dev.benchmarks.warm_up [--rounds 3]"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from dev.benchmarks.cases import rest_binary
from dev.benchmarks.report import RESULTS, markdown, measured_on, stamp
from dev.benchmarks.requests import send_request
from dev.benchmarks.servers.frameworks.models import CLASSES, ROWS, WARM_UPS, images
from dev.benchmarks.servers.start import ROOT
from tests.kit.environments import make_environment, version_in
from tests.kit.processes import Running, free_ports, started

MODELS = {"pytorch": "PyTorch", "compiled": "PyTorch, torch.compile", "onnx": "ONNX Runtime"}
REQUIREMENTS = ROOT / "dev/benchmarks/servers/frameworks/requirements.txt"
PACKAGES = ("torch", "onnxruntime")
READY_SECONDS = 600  # torch.compile() takes minutes on a busy core
LEGEND = """One request at a time over REST, with binary tensors. The service has one worker on one CPU core, and the
client runs on another. The network has six convolutions, and a row is an image of 224 by 224 pixels. With `EXAMPLE`,
the warm-up is one call with one row. With `warm_up(model)`, it is one call for each number of rows."""


@click.command(context_settings={"show_default": True})
@click.option(
    "--rounds", default=3, help="Number of starts of each service. The results are medians."
)
@click.option("--requests", default=20, help="Number of requests after the first one.")
@click.option("--output", type=Path, default=RESULTS, help="Directory for warm_up.json and .md.")
def main(rounds: int, requests: int, output: Path) -> None:
    """Compare the first request after readiness with the following ones, for PyTorch and ONNX Runtime."""
    python = make_environment("frameworks", REQUIREMENTS)
    server_cpu, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or [server_cpu])
    runs = [(model, warm_up) for model in MODELS for warm_up in WARM_UPS]
    measured = defaultdict(list)
    for model in MODELS:  # the first start writes bytecode
        measure(python, model, "EXAMPLE", 1, server_cpu)
    with click.progressbar(
        runs * rounds, label="measuring", item_show_func=lambda run: run and " ".join(run)
    ) as bar:
        for run in bar:
            measured[run].append(measure(python, *run, requests, server_cpu))
    rows = [
        {"model": model, "warm_up": warm_up}
        | {name: median(each[name] for each in found) for name in found[0]}
        for (model, warm_up), found in measured.items()
    ]
    versions = ", ".join(f"{package} {version_in(python, package)}" for package in PACKAGES)
    made = stamp() | {"rounds": rounds, "requests": requests, "versions": versions, "rows": rows}
    output.mkdir(parents=True, exist_ok=True)
    (output / "warm_up.json").write_text(json.dumps(made, indent=1) + "\n")
    (output / "warm_up.md").write_text(page(made))
    click.echo(page(made))


def measure(python: Path, model: str, warm_up: str, requests: int, cpu: int) -> dict[str, float]:
    """Start the service. Return the seconds until it is ready, and those of the requests by number of rows.

    torch.compile() stores its results in a directory, which is new for each start as in a new container.
    """
    http, grpc = free_ports(2)
    environment: dict[str, Any] = {
        "PYTHONPATH": ROOT,
        "PYTHONDONTWRITEBYTECODE": "",
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "WORKERS": 1,
        "SHUTDOWN_DELAY_SECONDS": 0,
        "LOG_LEVEL": "WARNING",
    }
    app = f"dev.benchmarks.servers.frameworks.models:{model}({warm_up!r})"
    command: list[str | Path] = ["taskset", "-c", str(cpu), python, "-m", "gunicorn", app]
    with tempfile.TemporaryDirectory() as cache:
        begun = time.perf_counter()
        environment["TORCHINDUCTOR_CACHE_DIR"] = cache
        with started(command, ROOT, environment, ready_seconds=READY_SECONDS) as running:
            found = {"ready": time.perf_counter() - begun}
            for rows in ROWS:
                first, *following = (send(running, rows) for _ in range(requests + 1))
                found |= {f"first_{rows}": first, f"median_{rows}": median(following)}
    return found


def send(running: Running, rows: int) -> float:
    """Return the seconds until the response arrived."""
    case = rest_binary("", "", "network", images(rows), np.empty((rows, CLASSES), "<f4"))
    begun = time.perf_counter()
    send_request(case, running)
    return time.perf_counter() - begun


def page(made: dict[str, Any]) -> str:
    head = ["model", "warm-up", "ready after"]
    for rows in ROWS:
        head += [f"first request, {rows} row{'s'[: rows > 1]}", "median"]
    lines = [
        [
            MODELS[row["model"]],
            row["warm_up"],
            f"{row['ready']:.1f} s",
            *(
                f"{row[f'{name}_{rows}'] * 1000:,.0f} ms"
                for rows in ROWS
                for name in ("first", "median")
            ),
        ]
        for row in made["rows"]
    ]
    counts = f"Medians of {made['rounds']} starts. A median is that of {made['requests']} requests after the first one."
    versions = f"Versions: {made['versions']}."
    return f"{LEGEND}\n\n{counts} {versions} {measured_on(made)}\n\n{markdown([head, *lines])}\n"


if __name__ == "__main__":
    main()
