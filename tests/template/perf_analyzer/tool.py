"""Install and run perf_analyzer, Triton's load generator, and write its input data."""

from __future__ import annotations

import base64
import csv
import ctypes.util
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.environments import LOCAL, ROOT, make_environment, run
from tests.kit.processes import Running

LIBRARY, PACKAGE = "libb64.so.0d", "libb64-0d"
CACHE = ROOT / ".cache" / PACKAGE
REQUESTS = 200  # perf_analyzer fails if all requests end before its first call for statistics
SERVER_TIMES = (
    "Server Queue",
    "Server Compute Input",
    "Server Compute Infer",
    "Server Compute Output",
)
TRIES, HANGING_SECONDS = 3, 60

# measure(model, service, *options) runs perf_analyzer against the model. It checks that all requests succeed, and that
# the report has the times of the server.
Measure = Callable[..., None]


def install_perf_analyzer() -> tuple[Path, str]:
    """Return the path of perf_analyzer in a separate environment, and the LD_LIBRARY_PATH that it needs."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.fail(
            "perf_analyzer supports only Linux on x86-64. Deselect its tests: -k 'not perf_analyzer'"
        )
    python = make_environment("perf-analyzer", Path(__file__).parent / "requirements.txt")
    (cuda,) = python.parents[1].glob("lib/*/site-packages/nvidia/cuda_runtime/lib")
    return python.parent / "perf_analyzer", f"{cuda}:{find_library()}"


def make_perf_analyzer(folder: Path) -> Measure:
    """Return a function that runs perf_analyzer and writes reports to `folder`."""
    executable, libraries = install_perf_analyzer()

    def measure(model: str, service: Running, *options: str | Path) -> None:
        report = folder / "report.csv"
        report.unlink(missing_ok=True)
        address = service.grpc_address if "grpc" in options else service.http_address
        command = [executable, "-m", model, "-u", address, "-f", report, *options]
        command += ["--request-count", str(REQUESTS)]
        for _ in range(
            TRIES
        ):  # perf_analyzer never ends if all responses arrive before its first check
            with suppress(subprocess.TimeoutExpired):
                output = run(*command, timeout=HANGING_SECONDS, LD_LIBRARY_PATH=libraries, **LOCAL)
                break
        else:
            pytest.fail("perf_analyzer does not end")
        assert f"Request count: {REQUESTS}\n" in output, output
        (row,) = csv.DictReader(report.read_text().splitlines())
        assert float(row["Inferences/Second"]) > 0, row
        assert "  Server: \n" in output, output
        assert sum(float(row[name]) for name in SERVER_TIMES) > 0, row

    return measure


def find_library() -> Path:
    """Return the directory of libb64, which perf_analyzer needs. Download it if the system does not have it."""
    if ctypes.util.find_library("b64") != LIBRARY and not (CACHE / LIBRARY).exists():
        fetch_library()
    return CACHE


def fetch_library() -> None:
    """Download libb64 from Debian's package into .cache/, without root and without the system's package lists."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        lists, cache = Path(folder, "lists"), Path(folder, "cache")
        for directory in lists, cache:
            (directory / "partial").mkdir(parents=True)
        settings = {"Dir::State::lists": lists, "Dir::Cache": cache, "APT::Sandbox::User": "root"}
        apt = ["apt-get", "--quiet", *[f"-o{name}={value}" for name, value in settings.items()]]
        try:
            for command in [*apt, "update"], [*apt, "download", PACKAGE]:
                subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
            (package,) = Path(folder).glob("*.deb")
            subprocess.run(
                ["dpkg-deb", "--extract", package, "tree"],
                cwd=folder,
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.fail(
                f"perf_analyzer needs {LIBRARY}: install it (Debian, Ubuntu: apt-get install {PACKAGE}), "
                f"or fix the download: {error}\n{getattr(error, 'stderr', '')}"
            )
        (library,) = Path(folder, "tree").rglob(f"*/{LIBRARY}")
        shutil.move(library.resolve(), CACHE / LIBRARY)


def input_data(tensors: Mapping[str, np.ndarray], suffix: str = "_in") -> dict[str, Any]:
    """Return the tensors in the format of --input-data. Each element is exact."""
    return {
        f"{name}{suffix}": {"content": content(array), "shape": array.shape}
        for name, array in tensors.items()
    }


def content(array: np.ndarray) -> Any:
    if array.dtype == object:
        return [element.decode() for element in array.ravel()]
    return {"b64": base64.b64encode(array.tobytes()).decode()}
