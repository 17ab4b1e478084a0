"""Resource limits: CPU cores, memory and open files."""

import ctypes
import gc
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.config.cgroups import PROCESS, read_limits

# By default, numeric libraries start one thread per CPU core of the machine in each worker.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# The part of a memory limit that can be used. The rest is for the kernel's memory, such as that of
# sockets, and for small requests, which are not counted.
USABLE_SHARE = 0.9

# Open files of a process that are not connections. REST and gRPC each get half of the others.
OWN_FILES = 128
MAX_CONNECTIONS = 2**14
# The limit to set if the hard limit is infinite, as on macOS.
OPEN_MAX = 10_240


class _MallocParameter(NamedTuple):
    """A parameter of glibc's malloc.

    - variable: the environment variable with which a user can set it.
    - number: its number in malloc.h, for mallopt().
    - value: the value for this service.
    """

    variable: str
    number: int
    value: int


_MALLOC_PARAMETERS = (
    _MallocParameter("MALLOC_TRIM_THRESHOLD_", number=-1, value=64 * 2**20),
    _MallocParameter("MALLOC_TOP_PAD_", number=-2, value=2**20),
    _MallocParameter("MALLOC_MMAP_THRESHOLD_", number=-3, value=32 * 2**20),  # the maximum
    _MallocParameter("MALLOC_ARENA_MAX", number=-8, value=1),
)


def usable_cores(process: Path = PROCESS) -> int:
    """Return the number of CPU cores that this process can use: at least 1.

    Its affinity and the CPU limit of its container determine the number. `process` is its directory
    in /proc.
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    limit = read_limits(process).cores
    if limit is not None:
        cores = min(cores, int(limit))
    return max(1, cores)


def limit_library_threads(workers: int) -> None:
    """Limit the threads of numeric libraries to the worker's share of the cores.

    Call this before importing NumPy.
    """
    threads = max(1, usable_cores() // workers)
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(threads))


def configure_malloc() -> None:
    """Let glibc's malloc keep up to 64 MiB of free memory, unless the environment variables are
    set.

    By default, malloc maps and unmaps memory for each body of a megabyte. Blocks over 32 MiB are
    still unmapped.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    for parameter in _MALLOC_PARAMETERS:
        if parameter.variable not in os.environ:
            mallopt(parameter.number, parameter.value)


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection.

    Those of the libraries and of the model stay until the end of the process. Each full collection
    would look at all of them, which takes milliseconds, during which no request is processed.
    """
    gc.collect()
    gc.freeze()


def release_free_memory() -> None:
    """Return free memory to the system, such as temporary memory of load()."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def memory_for_requests(limit: float, workers: int) -> int:
    """Return the bytes that requests of this worker can use, at least 0.

    limit: the memory of the master and its workers, of which each worker has an equal share. Call
        this in a worker, when it has loaded its model.
    """
    master_bytes = anonymous_bytes(os.getppid())
    share = (USABLE_SHARE * limit - master_bytes) / workers
    return max(0, int(share) - anonymous_bytes(os.getpid()))


def anonymous_bytes(process_id: int) -> int:
    """Return the memory of a process without its files, which the system can read again.

    Systems other than Linux do not report it: return 0.
    """
    try:
        pages = Path(f"/proc/{process_id}/statm").read_text().split()
    except OSError:
        return 0
    resident_pages = int(pages[1])
    file_pages = int(pages[2])
    return (resident_pages - file_pages) * resource.getpagesize()


def raise_file_limit() -> int:
    """Raise the limit for open files to the hard limit.

    Return the maximum number of REST connections per worker, which is also that of gRPC.
    """
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard_limit
    if hard_limit == resource.RLIM_INFINITY:
        limit = max(soft_limit, OPEN_MAX)
    with suppress(OSError, ValueError):  # above the system's limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))

    connections = (limit - OWN_FILES) // 2
    return max(1, min(MAX_CONNECTIONS, connections))
