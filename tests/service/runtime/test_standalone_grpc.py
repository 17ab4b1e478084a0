"""The gRPC service without gunicorn: `python -m grpc_service`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes import standalone_grpc
from tests.kit.projects import edit, make_project
from tests.service.runtime.commands import ROOT, start

WASTEFUL = """import os


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20


def load():
    blocks = [b"x" * 2**20 for _ in range(60)]
    return resident()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_standalone_grpc_releases_memory_that_load_freed(tmp_path: Path) -> None:
    """`python -m grpc_service` returns the memory that load() has freed to the operating system."""
    edit(make_project(tmp_path), "def load():\n", WASTEFUL)
    edit(tmp_path, "x + model", "x + model - resident()")
    with standalone_grpc(tmp_path) as client:
        _, _, (freed,) = client.infer([("x", "FP32", [1], [0.0])], model="adder").outputs["y"]
        assert freed > 50


def test_standalone_grpc_exit_status(tmp_path: Path) -> None:
    """`python -m grpc_service` exits with 4 if predict() does not match METADATA, and with 1 for other errors."""
    assert start("grpc_service", GRPC_PORT="x").returncode == 1
    edit(make_project(tmp_path), "def predict(model, ", "def predict(model, other, ")
    command = [sys.executable, "-m", "grpc_service"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "predict() does not match METADATA" in done.stderr) == (4, True)


def test_standalone_grpc() -> None:
    """T3: `python -m grpc_service` serves gRPC with statistics, without REST, and exits with 0 on SIGTERM."""
    with standalone_grpc(ROOT) as client:
        assert client.call("ServerReady").ready
        for count in (1, 2):
            features = ("features", "FP32", [1, 4], [5.1, 3.5, 1.4, 0.2])
            assert client.infer([features], model="iris").is_success
            (stats,) = client.call("ModelStatistics").model_stats
            assert stats.inference_count == stats.inference_stats.compute_infer.count == count


def test_standalone_grpc_exits_during_stuck_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PREDICT_TIMEOUT_SECONDS, the client of a stuck call gets an error, and the call does not delay the exit."""
    monkeypatch.setenv("PREDICT_TIMEOUT_SECONDS", "0.5")
    stuck = "    import threading\n\n    x[0] and threading.Event().wait()\n    return {"
    edit(make_project(tmp_path), "    return {", stuck)
    edit(tmp_path, "def predict", "def warm_up(model):\n    pass\n\n\ndef predict")
    with standalone_grpc(tmp_path) as client:
        assert client.infer([("x", "FP32", [1], [1.0])], model="adder").kind == "DEADLINE_EXCEEDED"
        assert client.infer([("x", "FP32", [1], [0.0])], model="adder").is_success
