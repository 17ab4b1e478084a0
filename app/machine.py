"""What the process has of the machine: its processors, how it keeps memory, and how many files it may open."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
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

# Open files of a process apart from connections. Of the others, REST and gRPC get one half each.
OWN_FILES = 128
MAX_CONNECTIONS = 2**14
# macOS has no hard limit, but grants no process more than this (OPEN_MAX).
OPEN_MAX = 10_240
# With fewer, gRPC or the metrics may find none left.
FEW_FILES = 256

logger = logging.getLogger(__name__)


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Return the number of CPU cores that this process may use, by its affinity and its control group."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, int(quota(cgroup) or cores)))


def quota(cgroup: Path) -> float | None:
    """Return the limit of the control group in CPU cores. None if it sets none."""
    try:
        if (cgroup / "cpu.max").exists():
            granted, period = (cgroup / "cpu.max").read_text().split()
        else:  # version 1 of control groups
            granted, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        share = float(granted) / float(period)
    except (OSError, ValueError):  # "max" is no number
        return None
    return share if share > 0 else None


def share_cores(workers: int) -> None:
    """Give the numeric libraries of each worker its share of the cores. Call this before NumPy is imported."""
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(max(1, usable_cores() // workers)))


def keep_memory() -> None:
    """Let glibc's malloc keep up to some tens of megabytes of free memory, unless the environment sets this.

    Otherwise a body of a megabyte is mapped and paged in again for each request. Blocks of 32 MiB are given back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, (parameter, value) in ALLOCATOR.items():
        if mallopt and variable not in os.environ:
            mallopt(parameter, value)


def give_back_memory() -> None:
    """Give free memory back to the system, for example what load() needed for a while."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


@contextmanager
def patient_threads() -> Iterator[None]:
    """Threads that are started meanwhile, and by those, do not interrupt what runs when they wake, but wait behind it.

    For threads that wake each other for every call: each comes to an end with what it has before the next begins. It
    is Linux's SCHED_BATCH; elsewhere, and where the process has been given another policy, nothing is changed.
    """
    batch = getattr(os, "SCHED_BATCH", None)
    is_set = False
    with suppress(OSError):  # a sandbox may forbid it
        if batch is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, batch, os.sched_param(0))
            is_set = True
    try:
        yield
    finally:
        if is_set:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@cache  # so that it warns once for all workers
def allow_connections() -> int:
    """Raise the limit of open files. Return the number of REST connections that a worker may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files in (hard, max(soft, OPEN_MAX)):
        with suppress(OSError, ValueError):  # more than the system grants
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            soft = files
            break
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    if soft < FEW_FILES:
        logger.warning(
            "Only %d files may be open. Raise the hard limit: ulimit -Hn, LimitNOFILE, --ulimit nofile", soft
        )
    return max(1, min(MAX_CONNECTIONS, (soft - OWN_FILES) // 2))
