"""The directory of prometheus_client's multiprocess mode, and the files of processes that have ended.

prometheus_client keeps a file of each process forever, so that restarts of workers would fill the directory. Here the
files of ended processes are merged, so that no counter goes back. Only this module uses private names of
prometheus_client.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import shutil
import tempfile
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import IO, Any

from app.errors import SetupError

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
PREFIX = "inference-metrics-"
MEMORY = Path("/dev/shm")
# Locked by a process that reads or merges files.
LOCK = "files.lock"
# Stands for the process id in the names of merged files.
ENDED = "ended"
# Reserved bytes by kind of file: if memory is full, a write to a mapped file ends the process.
RESERVED = {"counter": 2**16, "histogram": 2**18, "gauge_livesum": 2**16, "gauge_livemax": 2**16}
WORKER_BYTES = 2 * sum(RESERVED.values())

# Limit of the wait for processes that read the files.
SWEEP_SECONDS = 0.5

logger = logging.getLogger(__name__)
_owned: list[Path] = []


def folder() -> Path | None:
    """Return the directory where this process counts, or None if it counts in its own memory."""
    name = os.environ.get(VARIABLE)
    return Path(name) if name else None


def open_folder(workers: int) -> Path:
    """Return the directory for a master and its workers: PROMETHEUS_MULTIPROC_DIR, or a new one that it removes later.

    Call this before prometheus_client is imported. Raise SetupError if the directory cannot be created.
    """
    given = folder()
    try:
        if given is None or (given.name.startswith(PREFIX) and given not in _owned):  # a previous master's
            given = new_folder(workers * WORKER_BYTES)
            os.environ[VARIABLE] = str(given)
        open_lock(given).close()
    except OSError as error:
        raise SetupError(f"{VARIABLE}: cannot create the directory for metrics: {error}") from error
    return given


def folder_in_memory() -> Path | None:
    """Return /dev/shm if this process may write to it."""
    return MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None


def new_folder(room: int) -> Path:
    """Create a temporary directory, in memory if `room` bytes are free. Remove those that dead masters left.

    A master and its workers lock the directory itself as long as they live. It gets its name after that.
    """
    memory = folder_in_memory()
    base = memory if memory and shutil.disk_usage(memory).free > room else Path(tempfile.gettempdir())
    for path in base.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or removed at the same time
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            if path.stat().st_uid == os.getuid() and try_lock(descriptor):
                shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)
    unlocked = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}", dir=base))
    try_lock(os.open(unlocked, os.O_RDONLY))
    path = unlocked.rename(base / unlocked.name.removeprefix("new-"))
    _owned.append(path)
    atexit.register(close_folder, os.getpid())
    return path


def close_folder(master: int) -> None:
    """Remove the directory that this process created. Do nothing in a process that `master` forked."""
    for path in _owned if os.getpid() == master else ():
        shutil.rmtree(path, ignore_errors=True)


def try_lock(descriptor: int) -> bool:
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def open_lock(place: Path) -> IO[bytes]:
    """Open the lock file, and create the directory again if something removed it."""
    place.mkdir(0o700, parents=True, exist_ok=True)
    return (place / LOCK).open("ab")


def reserve(place: Path) -> None:
    """Reserve room for this process's files, except on macOS. Raise SetupError if there is none."""
    try:
        open_lock(place).close()
        for kind, size in RESERVED.items():
            with (place / f"{kind}_{os.getpid()}.db").open("ab") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise SetupError(f"no room for metrics in {place}: {error.strerror}") from error


@contextmanager
def reading(place: Path) -> Iterator[list[str]]:
    """Return the files of `place`, and keep them from being merged."""
    with open_lock(place) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield [str(path) for path in place.glob("*.db") if path.stat().st_size]


def sweep(place: Path, merge: bool = True) -> None:
    """Remove the gauges of processes that have ended, and merge their other files.

    If other processes read them for SWEEP_SECONDS, leave it to the next call.
    """
    with open_lock(place) as lock:
        end = time.monotonic() + SWEEP_SECONDS
        while not try_lock(lock.fileno()):
            if time.monotonic() > end:
                return
            time.sleep(0.01)
        ended = defaultdict(list)
        for path in place.glob("*.db"):
            kind, _, process = path.stem.rpartition("_")
            if process.isdigit() and not is_alive(int(process)):
                ended[kind].append(path)
        for kind, paths in ended.items():
            is_gauge = kind.startswith("gauge_live") or kind == "gauge_all"
            if merge and not is_gauge:
                try:
                    merge_files(paths, place / f"{kind}_{ENDED}.db")
                except Exception as error:  # memory is full, or a process was killed while it wrote
                    logger.warning("Lost metrics of workers that have ended: %s", error)
            for path in paths if merge or is_gauge else ():
                path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def merge_files(paths: list[Path], total: Path) -> None:
    """Add the values of `paths`, all of one kind, to those in `total`."""
    from prometheus_client.mmap_dict import MmapedDict, mmap_key  # after the variable is set
    from prometheus_client.multiprocess import MultiProcessCollector

    files = [str(path) for path in (total, *paths) if path.exists() and path.stat().st_size]
    metrics = MultiProcessCollector.merge(files, accumulate=False)
    fresh = total.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    merged = MmapedDict(str(fresh))
    for metric in metrics:
        for sample in metric.samples:
            key = mmap_key(metric.name, sample.name, [*sample.labels], [*sample.labels.values()], metric.documentation)
            merged.write_value(key, sample.value, 1.0)  # the time, before that of any living process
    merged.close()
    fresh.replace(total)


def observe_all(histogram: Any, values: Sequence[float], use_internals: bool = True) -> None:
    """Do the same as histogram.observe() for each of `values`, with private names in a tenth of the time."""
    bounds, buckets = (getattr(histogram, name, None) for name in ("_upper_bounds", "_buckets"))
    if not (use_internals and bounds and buckets):
        for value in values:
            histogram.observe(value)
        return
    for place, count in Counter(map(bisect_left, repeat(bounds), values)).items():
        buckets[place].inc(count)
    histogram._sum.inc(sum(values))
