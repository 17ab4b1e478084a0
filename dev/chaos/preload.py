"""Memory that PRELOAD_MODEL saves, on Linux: python -m dev.chaos.preload

The model needs 500 MB. One and four workers load separate copies, then four workers share a copy.
The memory is the sum of PSS over the master and its workers, which counts shared pages once.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.types import MetadataTensor
from tests.kit import models
from tests.kit.processes import Running, gunicorn, wait_for

ROOT = Path(__file__).parents[2]
MODEL_BYTES = 500 * 10**6
GOAL = 1.3
ANSWERS = 20  # per worker
MOST_REQUESTS = 10_000


def heavy() -> Flask:
    """Return a model of random bytes. predict() reads all bytes and returns the worker's PID."""

    def load() -> np.ndarray:
        return np.frombuffer(np.random.default_rng(0).bytes(MODEL_BYTES), np.uint8)

    def predict(model: np.ndarray, x: np.ndarray) -> dict[str, Any]:
        return {"sum": np.array([model[:: 2**10].sum()]), "pid": np.array([os.getpid()])}

    outputs = [MetadataTensor("sum", "UINT64", [1]), MetadataTensor("pid", "INT64", [1])]
    return create_app(
        module=models.model([MetadataTensor("x", "FP32", [-1])], outputs, predict, load)
    )


def main() -> int:
    """Run the measurement. Return 1 if four workers need more than GOAL times the memory of one."""
    megabytes = {case: measure(*case) for case in ((1, "off"), (4, "off"), (4, "on"))}
    alone = megabytes[1, "off"]
    print("workers  PRELOAD_MODEL  memory, MB  times")
    for (workers, preload), each in megabytes.items():
        print(f"{workers:>7}  {preload:>7}  {each:>10.0f}  {each / alone:>5.2f}")
    return int(megabytes[4, "on"] > GOAL * alone)


def measure(count: int, preload: str) -> float:
    """Return the memory in MB of a service with `count` workers after each has served requests."""
    with gunicorn(
        ROOT, "dev.chaos.preload:heavy()", WORKERS=count, PRELOAD_MODEL=preload
    ) as service:
        wait_for(lambda: len(workers(service)) == count)
        responses = dict.fromkeys(workers(service), 0)
        for _ in range(MOST_REQUESTS):
            responses[send_request(service)] += 1
            if min(responses.values()) >= ANSWERS:
                break
        assert min(responses.values()) >= ANSWERS, responses
        return sum(map(pss, [service.process.pid, *responses])) / 1e6


def workers(service: Running) -> list[int]:
    master = service.process.pid
    return [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]


def send_request(service: Running) -> int:
    """Send a request on a new connection and return the PID of the worker."""
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    with closing(http.client.HTTPConnection(service.http, timeout=60)) as connection:
        connection.request("POST", "/v2/models/test/infer", json.dumps(body))
        outputs = json.loads(connection.getresponse().read())["outputs"]
    return next(output["data"][0] for output in outputs if output["name"] == "pid")


def pss(pid: int) -> int:
    """Return the PSS of a process in bytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss: +(\d+) kB", text, re.MULTILINE)[0]) * 2**10


if __name__ == "__main__":
    sys.exit(main())
