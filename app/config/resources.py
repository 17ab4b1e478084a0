"""Limits of the machine: CPU cores, memory and open files."""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
# Libraries of numeric code start as many threads as the machine has processors, in each worker.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# glibc's parameters of malloc (malloc.h), and the environment variables that set them too.
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**26),
    "MALLOC_TOP_PAD_": (-2, 2**20),
    "MALLOC_MMAP_THRESHOLD_": (-3, 2**25),  # its largest
    "MALLOC_ARENA_MAX": (-8, 1),
}

# Open files of a process that are not connections. REST and gRPC get half of the others each.
OWN_FILES = 128
MAX_CONNECTIONS = 2**14
# The maximum if the system has no hard limit, as on macOS.
OPEN_MAX = 10_240


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Return the number of CPU cores that this process may use, by its affinity and its control group."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, int(cpu_limit(cgroup) or cores)))


def cpu_limit(cgroup: Path) -> float | None:
    """Return the limit of the control group (version 2) in CPU cores, or None."""
    try:
        granted, period = (cgroup / "cpu.max").read_text().split()
        return float(granted) / float(period)
    except (OSError, ValueError):  # "max" is not a number
        return None


def limit_library_threads(workers: int) -> None:
    """Give the numeric libraries of each worker its share of the cores. Call this before NumPy is imported."""
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(max(1, usable_cores() // workers)))


def configure_malloc() -> None:
    """Let glibc's malloc keep up to some tens of megabytes of free memory, unless the environment sets this.

    Otherwise a body of a megabyte is mapped and paged in again for each request. Blocks of 32 MiB are given back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, (parameter, value) in ALLOCATOR.items():
        if mallopt and variable not in os.environ:
            mallopt(parameter, value)


def release_free_memory() -> None:
    """Give free memory back to the system, for example what load() needed for a while."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def raise_file_limit() -> int:
    """Raise the limit of open files. Return the number of REST connections that a worker may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(soft, OPEN_MAX) if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):  # more than the system grants
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(MAX_CONNECTIONS, (files - OWN_FILES) // 2))
