"""What the process has of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.machine import OPEN_MAX, OWN_FILES, THREAD_VARIABLES, usable_cores
from tests.service.processes import python_path

ROOT = Path(__file__).parents[3]


def in_a_process(code: str, *arguments: str, **environment: str) -> str:
    """What the code prints in a fresh process."""
    command = [sys.executable, "-c", code, *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC")}
    return subprocess.run(
        command, cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "100000 100000\n"}, 1),
    ],
)
def test_cores_of_a_control_group(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    """A container's share of the processors counts, rounded down, and is at least one."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == expected


@pytest.mark.parametrize("text", ["max 100000\n", "", "640000000 100000\n"])
def test_cores_without_a_limit(tmp_path: Path, text: str) -> None:
    """Where the control group sets no limit, or one beyond the machine, the affinity counts."""
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path) == usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("workers", [1, 1000])
def test_threads_of_libraries(workers: int) -> None:
    """Each worker's libraries get its share of the cores, at least one, and what the environment says stays."""
    code = (
        f"import os; from app.machine import *; share_cores({workers}); print(*map(os.environ.get, THREAD_VARIABLES))"
    )
    share = str(max(1, usable_cores() // workers))
    first, second, third = THREAD_VARIABLES
    environment = {first: "7", second: "", third: ""}
    assert in_a_process(
        f"import os; del os.environ['{second}'], os.environ['{third}']\n{code}", **environment
    ).split() == [
        "7",
        share,
        share,
    ]


FILES = """
import resource, sys
from app.machine import allow_connections
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
print(allow_connections(), allow_connections())
"""


@pytest.mark.parametrize(("files", "connections"), [(64, 1), (255, 63), (256, 64), (2**10, 448)])
def test_open_files(files: int, connections: int) -> None:
    """A process may have half as many REST connections as open files, apart from those that it needs itself."""
    assert in_a_process(FILES, str(files)).strip() == f"{connections} {connections}"


def test_open_files_of_macos() -> None:
    """Where there is no limit, and nobody gets that, as many files are asked for as everybody gets."""
    code = "from app.machine import allow_connections; print(allow_connections())"
    path = python_path(ROOT / "tests/service/macos")
    assert int(in_a_process(code, PYTHONPATH=path)) == (OPEN_MAX - OWN_FILES) // 2


BLOCK, TIMES = 20 * 2**20, 10
PAGES = BLOCK * TIMES // 4096
FAULTS = f"""
import resource
from app.machine import keep_memory
keep_memory()
bytearray(b"x") * {BLOCK}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({TIMES}): bytearray(b"x") * {BLOCK}
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_is_kept() -> None:
    """A large block that is freed is used again, without a page fault for each of its pages."""
    assert int(in_a_process(FAULTS)) < PAGES / 10


def test_the_environment_decides() -> None:
    """Who sets glibc's own variables is not overruled."""
    assert int(in_a_process(FAULTS, MALLOC_MMAP_THRESHOLD_="100000", MALLOC_TRIM_THRESHOLD_="100000")) > PAGES / 2
