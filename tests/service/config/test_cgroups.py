"""The limits of the container, from control groups of version 1, version 2 and both."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config.cgroups import ContainerLimits, read_limits
from tests.service.config.control_groups import (
    MOVED,
    VERSION_1,
    VERSION_1_DOCKER,
    VERSION_2,
    VERSION_2_NAMESPACE,
    Layout,
    make_process,
)

GIB = 2**30
QUOTA = "cpu.cfs_quota_us"
PERIOD = "cpu.cfs_period_us"
MEMORY = "memory.limit_in_bytes"
UNLIMITED = str(2**63 - 4096)


@pytest.mark.parametrize(
    ("layout", "files", "cores", "memory_bytes"),
    [
        pytest.param(
            VERSION_2,
            {"pod/cpu.max": "150000 100000", "pod/memory.max": str(GIB)},
            1.5,
            GIB,
            id="version 2",
        ),
        pytest.param(
            VERSION_2_NAMESPACE,
            {"cpu.max": "50000 100000", "memory.max": str(GIB)},
            0.5,
            GIB,
            id="version 2 in a namespace",
        ),
        pytest.param(
            VERSION_2,
            {"cpu.max": "100000 100000", "pod/cpu.max": "max 100000", "pod/memory.max": "max"},
            1,
            None,
            id="version 2, limit of a group around",
        ),
        pytest.param(
            VERSION_1,
            {
                f"cpu,cpuacct/pod/main/{QUOTA}": "-1",
                f"cpu,cpuacct/pod/main/{PERIOD}": "100000",
                f"cpu,cpuacct/pod/{QUOTA}": "200000",
                f"cpu,cpuacct/pod/{PERIOD}": "100000",
                f"memory/pod/main/{MEMORY}": str(2 * GIB),
                f"memory/pod/{MEMORY}": str(GIB),
                f"memory/{MEMORY}": UNLIMITED,
            },
            2,
            GIB,
            id="version 1, lower limit of a group around",
        ),
        pytest.param(
            VERSION_1_DOCKER,
            {
                f"cpu/{QUOTA}": "50000",
                f"cpu/{PERIOD}": "100000",
                f"memory/{MEMORY}": str(GIB),
            },
            0.5,
            GIB,
            id="version 1 in Docker",
        ),
        pytest.param(
            VERSION_1,
            {f"cpu,cpuacct/pod/main/{QUOTA}": "-1", f"memory/pod/main/{MEMORY}": UNLIMITED},
            None,
            None,
            id="version 1 without limits",
        ),
        pytest.param(MOVED, {"memory.max": str(GIB)}, None, GIB, id="moved process"),
        pytest.param(VERSION_2, {}, None, None, id="no files"),
    ],
)
def test_limits(
    tmp_path: Path,
    layout: Layout,
    files: dict[str, str],
    cores: float | None,
    memory_bytes: int | None,
) -> None:
    """A limit is the lowest one of the group of the process and of all groups around it."""
    process = make_process(tmp_path, layout, files)
    assert read_limits(process) == ContainerLimits(cores, memory_bytes)


def test_system_without_control_groups(tmp_path: Path) -> None:
    """Without /proc, as on macOS, there is no limit."""
    assert read_limits(tmp_path) == ContainerLimits(None, None)
