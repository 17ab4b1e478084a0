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

# Of a process's open files, what is left for its own; gRPC's connections may have as many as REST's.
OWN_FILES = 128
CONNECTIONS_AT_MOST = 2**14
# macOS, whose hard limit is none, grants nobody that; so many (its OPEN_MAX) it does.
OPEN_MAX = 10_240
# With fewer than this, gRPC or the metrics may find none left.
FEW_FILES = 256
MORE_FILES = "raise the hard limit: ulimit -Hn, LimitNOFILE, --ulimit nofile"

logger = logging.getLogger(__name__)


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

    What is kept is some tens of megabytes, or as much as ever was in use at once where something above it still is;
    blocks beyond 32 MiB are given back.

    What the environment sets stays, and another C library than glibc is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, (parameter, value) in ALLOCATOR.items():
        if mallopt and variable not in os.environ:
            mallopt(parameter, value)


def give_back_memory() -> None:
    """Gives the system what malloc keeps of what is free already, such as what load() needed for a while."""
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


@cache  # or each worker would tell it too
def allow_connections() -> int:
    """Lets the process and its children open as many files as they may; says how many REST connections that makes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files in (hard, max(soft, OPEN_MAX)):
        with suppress(OSError, ValueError):  # more than the system has
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            soft = files
            break
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_AT_MOST
    if soft < FEW_FILES:
        logger.warning("no more than %d files may be open, which is too few for many connections: %s", soft, MORE_FILES)
    return connections_of(soft)


def connections_of(files: int) -> int:
    """How many REST connections that many open files make."""
    return max(1, min(CONNECTIONS_AT_MOST, (files - OWN_FILES) // 2))
