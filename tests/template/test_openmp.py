"""PRELOAD_MODEL with OpenMP libraries, whose threads do not survive a fork."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oip_conformance.wires import Grpc
from tests.kit.processes import gunicorn, wait_for, workers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("library", "app"), [("sklearn", "boosting"), ("xgboost", "xgboosting"), ("torch", "network")]
)
def test_workers_compute_same_result_as_load(library: str, app: str) -> None:
    """After load() used four threads in the master, each worker returns the same result, and no warning is logged."""
    pytest.importorskip(library)
    settings = {"PRELOAD_MODEL": "on", "WORKERS": 2, "OMP_NUM_THREADS": 4}
    with gunicorn(ROOT, f"tests.template.openmp:{app}()", **settings) as service:

        def check_prediction(_: int) -> int:
            with service.own_channel() as channel:
                outputs = Grpc(channel).infer([("x", "FP32", [1], [1.0])]).outputs
            assert outputs["now"][2] == pytest.approx(outputs["before"][2])
            return outputs["pid"][2][0]

        wait_for(lambda: len(workers(service)) == 2)
        assert "Native threads" not in service.log()
        with ThreadPoolExecutor(4) as pool:
            for _ in range(20):
                if set(pool.map(check_prediction, range(20))) == workers(service):
                    return
    raise AssertionError("a worker did not respond")
