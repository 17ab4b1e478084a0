"""Resource limits: CPU cores, memory and open files."""

import ctypes
import gc
import os
import resource
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
# By default, numeric libraries start one thread per CPU core of the machine in each worker.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Parameters of glibc's mallopt() (malloc.h), by the environment variables for the same parameters.
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**26),
    "MALLOC_TOP_PAD_": (-2, 2**20),
    "MALLOC_MMAP_THRESHOLD_": (-3, 2**25),  # the maximum
    "MALLOC_ARENA_MAX": (-8, 1),
}

# Open files of a process that are not connections. REST and gRPC each get half of the remaining files.
OWN_FILES = 128
MAX_CONNECTIONS = 2**14
# The limit to set if the hard limit is infinite, as on macOS.
OPEN_MAX = 10_240


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Return the number of CPU cores that this process can use according to its affinity and its cgroup."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, int(cpu_limit(cgroup) or cores)))


def cpu_limit(cgroup: Path) -> float | None:
    """Return the CPU limit of the cgroup (version 2) in cores, or None."""
    try:
        granted, period = (cgroup / "cpu.max").read_text().split()
        return float(granted) / float(period)
    except (OSError, ValueError):  # "max" is not a number
        return None


def limit_library_threads(workers: int) -> None:
    """Limit the threads of numeric libraries to the worker's share of the cores. Call this before importing NumPy."""
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(max(1, usable_cores() // workers)))


def configure_malloc() -> None:
    """Let glibc's malloc keep up to 64 MiB of free memory, unless the environment variables are set.

    By default, malloc maps and unmaps memory for each body of a megabyte. Blocks over 32 MiB are still unmapped.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, (parameter, value) in ALLOCATOR.items():
        if mallopt and variable not in os.environ:
            mallopt(parameter, value)


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection.

    Those of the libraries and of the model stay until the end of the process. Each full collection
    would look at all of them, which takes milliseconds, during which no request is processed.
    """
    gc.collect()
    gc.freeze()


def release_free_memory() -> None:
    """Return free memory to the system, such as temporary memory of load()."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def raise_file_limit() -> int:
    """Raise the limit for open files to the hard limit. Return the maximum number of REST connections per worker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(soft, OPEN_MAX) if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):  # above the system's limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(MAX_CONNECTIONS, (files - OWN_FILES) // 2))
