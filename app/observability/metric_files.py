"""Directory and file names for prometheus_client's multiprocess mode.

prometheus_client names files after the process id, so that worker restarts would fill the
directory. Here, each worker has a slot, such as `17w2` for the second worker of the master with the
process id 17. The files are named after the slot, and a new worker takes the slot of one that has
exited. Only this module uses private names of prometheus_client.
"""

import atexit
import logging
import os
import shutil
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

from app.protocol.errors import ConfigurationError

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
PREFIX = "service-metrics-"  # earlier versions of the service remove inference-metrics-*
MEMORY = Path("/dev/shm")
WORKER_BYTES = 2**20  # space for the files of one worker

logger = logging.getLogger(__name__)

_created: list[Path] = []
_slots: dict[int, str] = {}  # slots by process id. Processes that predict() forks have none


def metrics_directory() -> Path | None:
    """Return the directory of the metric files.

    None: this process keeps metrics in its own memory.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    return Path(name)


def memory_directory() -> Path | None:
    """Return /dev/shm if it is writable, or None."""
    return MEMORY if os.access(MEMORY, os.W_OK) else None


def _memory_with_room(workers: int) -> Path | None:
    """Return /dev/shm, or None if it does not exist or has no room for the files of all workers."""
    memory = memory_directory()
    if memory is None:
        return None
    free = shutil.disk_usage(memory).free
    needed = workers * WORKER_BYTES
    if free > needed:
        return memory
    logger.warning(
        "%s: too small for the metrics, which are on the disk instead. Expected more than %d MiB of"
        " free space, got %d MiB. Increase it: --shm-size (Docker) or shm.sizeLimit (Helm chart).",
        memory,
        needed // 2**20,
        free // 2**20,
    )
    return None


def create_directory(workers: int) -> Path:
    """Return PROMETHEUS_MULTIPROC_DIR, or create a directory for this master.

    The latter is in /dev/shm if that has enough space. Call this before prometheus_client is
    imported. Raise ConfigurationError if the directory cannot be created.
    """
    directory = metrics_directory()
    try:
        if directory is None or _belongs_to_other_master(directory):
            directory = _create_temporary_directory(workers)
        directory.mkdir(0o700, parents=True, exist_ok=True)
        _check_is_writable(directory)
    except OSError as error:
        raise ConfigurationError(
            f"{VARIABLE}: cannot create the directory for metrics: {error}."
        ) from error
    return directory


def _belongs_to_other_master(directory: Path) -> bool:
    """Return True for a directory that an earlier master made, and left in the environment."""
    return directory.name.startswith(PREFIX) and directory not in _created


def _create_temporary_directory(workers: int) -> Path:
    """Create a directory, which is removed at the exit of this process, and set the variable."""
    memory = _memory_with_room(workers)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory))
    _created.append(directory)
    atexit.register(remove_directory, os.getpid())
    os.environ[VARIABLE] = str(directory)
    return directory


def _check_is_writable(directory: Path) -> None:
    """Raise OSError if this process cannot create files in the directory."""
    tempfile.TemporaryFile(dir=directory).close()


def remove_directory(master: int) -> None:
    """Remove the directories that the process `master` created. Do nothing in a forked process."""
    if os.getpid() != master:
        return
    for directory in _created:
        shutil.rmtree(directory, ignore_errors=True)


def find_free_slot(occupied: Collection[str]) -> str:
    """Return the first slot of this master that is not one of the occupied ones."""
    number = 1
    while f"{os.getpid()}w{number}" in occupied:
        number += 1
    return f"{os.getpid()}w{number}"


def own_slot() -> str | int:
    """Return the slot of this process, or its process id if it has none."""
    return _slots.get(os.getpid(), os.getpid())


def use_slots() -> None:
    """Make prometheus_client name files after slots, not process ids.

    Call this before a metric is created.
    """
    from prometheus_client import values

    values.ValueClass = values.MultiProcessValue(own_slot)


def take_slot(name: str) -> None:
    """Use the files of this slot. Call this after the fork, before a metric is updated."""
    _slots[os.getpid()] = name
    directory = metrics_directory()
    if directory:  # another program may have removed it
        directory.mkdir(0o700, parents=True, exist_ok=True)


def files_to_merge(directory: Path) -> Iterator[str]:
    """Yield the files that are not empty.

    New files are empty at first, and exiting workers remove files of gauges.
    """
    for path in directory.glob("*.db"):
        with suppress(FileNotFoundError):
            if path.stat().st_size:
                yield str(path)


def observe_all(histogram: Any, values: Sequence[float], use_internals: bool = True) -> None:
    """Call histogram.observe() for each value, or do the same with private names.

    The latter takes a tenth of the time: it locks each bucket once for all values.
    """
    upper_bounds = getattr(histogram, "_upper_bounds", None)
    buckets = getattr(histogram, "_buckets", None)
    if not (use_internals and upper_bounds and buckets):
        for value in values:
            histogram.observe(value)
        return

    bucket_indexes = map(bisect_left, repeat(upper_bounds), values)
    for index, count in Counter(bucket_indexes).items():
        buckets[index].inc(count)
    histogram._sum.inc(sum(values))
