"""What the process has of the machine: its processors, and how it keeps memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
# Libraries of numeric code start as many threads as the machine has processors, in each worker.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# glibc's parameters of malloc (malloc.h), and the environment variables that set them too.
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**30),
    "MALLOC_TOP_PAD_": (-2, 2**26),
    "MALLOC_MMAP_THRESHOLD_": (-3, 2**30),
    "MALLOC_ARENA_MAX": (-8, 1),
}


def usable_cores(cgroup: Path = CGROUP) -> int:
    """How many processors the process may use, by its affinity and its control group; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, int(quota(cgroup) or cores)))


def quota(cgroup: Path) -> float | None:
    """The processors' time that the control group grants, in processors; None where it sets no limit."""
    try:
        if (cgroup / "cpu.max").exists():
            granted, period = (cgroup / "cpu.max").read_text().split()
        else:
            granted, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        share = float(granted) / float(period)
    except (OSError, ValueError):  # "max" is no number
        return None
    return share if share > 0 else None


def share_cores(workers: int) -> None:
    """Gives the libraries of each worker its share of the cores; call it before numpy is loaded."""
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(max(1, usable_cores() // workers)))


def keep_memory() -> None:
    """Lets malloc keep what is freed: a body of a megabyte is else mapped, and paged in, afresh for each request.

    What the environment sets stays, and another C library than glibc is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, (parameter, value) in ALLOCATOR.items():
        if mallopt and variable not in os.environ:
            mallopt(parameter, value)
