"""The resources of the process: CPU cores, open files and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.config.resources import OPEN_MAX, OWN_FILES, THREAD_VARIABLES, usable_cores
from tests.kit.processes import python_path
from tests.service.config.control_groups import VERSION_2, make_process

ROOT = Path(__file__).parents[3]


def run_in_process(code: str, *arguments: str, **environment: str) -> str:
    """Run the code in a new process and return its output."""
    command = [sys.executable, "-c", code, *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC")}
    return subprocess.run(
        command, cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("text", ["max 100000", "", "640000000 100000"])
def test_cores_follow_the_affinity(tmp_path: Path, text: str) -> None:
    """If the control group sets no limit, or one above the machine's cores, the CPU affinity applies."""
    process = make_process(tmp_path, VERSION_2, {"pod/cpu.max": text})
    assert usable_cores(process) == usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("quota", "cores"), [(50_000, 1), (100_000, 1), (199_999, 1)])
def test_cores_follow_the_control_group(tmp_path: Path, quota: int, cores: int) -> None:
    """The number of CPU cores is the CPU limit of the container, rounded down, and at least one."""
    process = make_process(tmp_path, VERSION_2, {"pod/cpu.max": f"{quota} 100000"})
    assert usable_cores(process) == cores


@pytest.mark.parametrize("workers", [1, 1000])
def test_shares_cores_between_workers(workers: int) -> None:
    """Each worker's libraries use its share of the cores, at least one, unless the environment sets a number."""
    code = f"""
import os
from app.config.resources import *
limit_library_threads({workers})
print(*map(os.environ.get, THREAD_VARIABLES))
"""
    share = str(max(1, usable_cores() // workers))
    first, second, third = THREAD_VARIABLES
    environment = {first: "7", second: "", third: ""}
    assert run_in_process(
        f"import os; del os.environ['{second}'], os.environ['{third}']\n{code}", **environment
    ).split() == [
        "7",
        share,
        share,
    ]


FILES = """
import resource, sys
from app.config.resources import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
print(raise_file_limit(), raise_file_limit())
"""


@pytest.mark.parametrize(("files", "connections"), [(64, 1), (255, 63), (256, 64), (2**10, 448)])
def test_connections_follow_the_open_file_limit(files: int, connections: int) -> None:
    """Half of the open files, after the process's own, are available for REST connections."""
    assert run_in_process(FILES, str(files)).strip() == f"{connections} {connections}"


def test_connections_on_macos() -> None:
    """On macOS, where the hard limit is unlimited but not available, the process raises its limit to OPEN_MAX."""
    code = "from app.config.resources import raise_file_limit; print(raise_file_limit())"
    path = python_path(ROOT / "tests/service/macos")
    assert int(run_in_process(code, PYTHONPATH=path)) == (OPEN_MAX - OWN_FILES) // 2


BLOCK, TIMES = 20 * 2**20, 10
PAGES = BLOCK * TIMES // 4096
FAULTS = f"""
import resource
from app.config.resources import configure_malloc
configure_malloc()
bytearray(b"x") * {BLOCK}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({TIMES}): bytearray(b"x") * {BLOCK}
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_reuses_freed_memory() -> None:
    """A large block of freed memory is reused without a page fault for each of its pages."""
    assert int(run_in_process(FAULTS)) < PAGES / 10


def test_environment_overrides_memory_settings() -> None:
    """glibc's own variables override the memory settings of the service."""
    assert (
        int(
            run_in_process(FAULTS, MALLOC_MMAP_THRESHOLD_="100000", MALLOC_TRIM_THRESHOLD_="100000")
        )
        > PAGES / 2
    )
