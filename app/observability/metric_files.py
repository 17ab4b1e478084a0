"""Directory and file names for prometheus_client's multiprocess mode.

prometheus_client names files after the process id, so that worker restarts would fill the directory. Here, a new worker
reuses the files of one that has exited. Only this module uses private names of prometheus_client.
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
from itertools import count, repeat
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
    """Return the directory of the metric files, or None if this process keeps metrics in its own memory."""
    return Path(name) if (name := os.environ.get(VARIABLE)) else None


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
    """Return PROMETHEUS_MULTIPROC_DIR, or create a directory for this master, in /dev/shm if it has enough space.

    Call this before prometheus_client is imported. Raise ConfigurationError if the directory cannot be created.
    """
    place = metrics_directory()
    try:
        if place is None or (
            place.name.startswith(PREFIX) and place not in _created
        ):  # of a previous master
            memory = _memory_with_room(workers)
            place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory))
            _created.append(place)
            atexit.register(remove_directory, os.getpid())
            os.environ[VARIABLE] = str(place)
        place.mkdir(0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise ConfigurationError(
            f"{VARIABLE}: cannot create the directory for metrics: {error}."
        ) from error
    return place


def remove_directory(master: int) -> None:
    """Remove the directories that the process `master` created. Do nothing in a forked process."""
    for path in _created if os.getpid() == master else ():
        shutil.rmtree(path, ignore_errors=True)


def find_free_slot(taken: Collection[str]) -> str:
    """Return the first slot name that no running worker of this master has."""
    return next(
        name for name in (f"{os.getpid()}w{number}" for number in count(1)) if name not in taken
    )


def own_slot() -> str | int:
    """Return the slot of this process, or its process id if it has none."""
    return _slots.get(os.getpid(), os.getpid())


def use_slots() -> None:
    """Make prometheus_client name files after slots, not process ids. Call this before a metric is created."""
    from prometheus_client import values

    values.ValueClass = values.MultiProcessValue(own_slot)


def take_slot(name: str) -> None:
    """Use the files of this slot. Call this after the fork, before a metric is updated."""
    _slots[os.getpid()] = name
    if place := metrics_directory():
        place.mkdir(0o700, parents=True, exist_ok=True)  # another program may have removed it


def files_to_merge(place: Path) -> Iterator[str]:
    """Yield the files that are not empty. New files are empty at first, and exiting workers remove files of gauges."""
    for path in place.glob("*.db"):
        with suppress(FileNotFoundError):
            if path.stat().st_size:
                yield str(path)


def observe_all(histogram: Any, values: Sequence[float], use_internals: bool = True) -> None:
    """Call histogram.observe() for each value, or use private names, which takes a tenth of the time."""
    bounds, buckets = (getattr(histogram, name, None) for name in ("_upper_bounds", "_buckets"))
    if not (use_internals and bounds and buckets):
        for value in values:
            histogram.observe(value)
        return
    for bucket, number in Counter(map(bisect_left, repeat(bounds), values)).items():
        buckets[bucket].inc(number)
    histogram._sum.inc(sum(values))
