"""The files that prometheus_client counts in, one a process and kind: where they are, and what is left of a dead one's.

prometheus_client leaves them for ever, and so a service whose workers come and go would have ever more. Here the
files of a process that has ended are added up into one, so that a counter never goes back.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from app.errors import SetupError

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
PREFIX = "inference-metrics-"
MEMORY = Path("/dev/shm")
# Held by a master as long as it lives, and its workers; by who adds up files, and by who reads them.
OWNER_LOCK, FILES_LOCK = "owner.lock", "files.lock"
# What stands for a process id in the names of files that were added up.
DEAD = "dead"
# Room that is made sure of for each kind of file: where memory is full, a write to a mapped file ends the process.
RESERVED = {"counter": 2**16, "histogram": 2**18, "gauge_livesum": 2**16, "gauge_livemax": 2**16}
WORKER_BYTES = 2 * sum(RESERVED.values())
# What a value takes beside its name, at most, in prometheus_client's form.
ENTRY_BYTES = 32
# So long the master waits for those that read.
PATIENCE_SECONDS, STEP_SECONDS = 0.2, 0.01

logger = logging.getLogger(__name__)
_owned: list[tuple[Path, int]] = []  # with the descriptor of its lock


def folder() -> Path | None:
    """Where this process counts; None where it counts in its own memory."""
    name = os.environ.get(VARIABLE)
    return Path(name) if name else None


def open_folder(workers: int) -> Path:
    """The folder for a master and its `workers`: what PROMETHEUS_MULTIPROC_DIR says, else a new one that goes with it.

    Call it before prometheus_client is imported; again, it is the same. Raises SetupError where it cannot be made.
    """
    given = folder()
    if given in [path for path, _ in _owned]:
        return given
    try:
        if given is None or given.name.startswith(PREFIX):  # another master's, of which this one is the heir
            given = new_folder(workers * WORKER_BYTES)
            os.environ[VARIABLE] = str(given)
        lock_of(given).close()
    except OSError as error:
        raise SetupError(f"{VARIABLE}: no folder for metrics: {error}") from error
    return given


def folder_in_memory() -> Path | None:
    """/dev/shm, where this process may write to it."""
    return MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None


def new_folder(room: int) -> Path:
    """A temporary folder, in memory where that has `room`, in bytes; those that dead masters left are removed."""
    memory = folder_in_memory()
    base = memory if memory and shutil.disk_usage(memory).free > room else Path(tempfile.gettempdir())
    for path in base.glob(f"{PREFIX}*"):
        remove_if_left(path)
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        lock = os.open(path / OWNER_LOCK, os.O_CREAT | os.O_RDWR)
        if is_taken(lock, fcntl.LOCK_EX) and path.is_dir():  # else another master thought that it was left
            break
        os.close(lock)
    _owned.append((path, lock))
    atexit.register(close_folder, os.getpid())
    return path


def close_folder(master: int) -> None:
    """Removes the folder that this process has made; does nothing in any but the `master`, as at the end of a fork."""
    for path, _ in _owned if os.getpid() == master else ():
        shutil.rmtree(path, ignore_errors=True)


def remove_if_left(path: Path) -> None:
    """Removes a folder of this user's that no process holds."""
    with suppress(OSError):
        if path.is_symlink() or path.stat().st_uid != os.getuid():
            return
        lock = os.open(path / OWNER_LOCK, os.O_RDWR)
        try:
            if is_taken(lock, fcntl.LOCK_EX):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def is_taken(descriptor: int, kind: int) -> bool:
    """Takes the lock, if that needs no wait."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def reserve(place: Path) -> None:
    """Makes sure of room for this process's files; SetupError where there is none."""
    try:
        for kind, size in RESERVED.items():
            lock_of(place).close()
            allocate(place / f"{kind}_{os.getpid()}.db", size)
    except OSError as error:
        raise SetupError(f"no room for metrics in {place}: {error.strerror}") from error


def allocate(path: Path, size: int) -> None:
    """Makes the file at least `size` bytes long, all of which it has; macOS cannot, and risks it."""
    with path.open("ab") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def lock_of(place: Path) -> IO[bytes]:
    """The file to lock; with the folder, where something has removed it."""
    place.mkdir(0o700, parents=True, exist_ok=True)
    return (place / FILES_LOCK).open("ab")


@contextmanager
def reading(place: Path) -> Iterator[list[str]]:
    """The files of `place`, none of which is added to another meanwhile."""
    with lock_of(place) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield [str(path) for path in place.glob("*.db") if size_of(path) and tells(path)]


def tells(path: Path) -> bool:
    """Whether it counts: what is told of living processes only does not outlive its own."""
    kind, _, process = path.stem.rpartition("_")
    return not (kind.startswith("gauge_live") and process.isdigit() and not lives(int(process)))


def size_of(path: Path) -> int:
    """0 for one that was just made, and for one of a live gauge that was just removed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sweep(place: Path) -> None:
    """Adds the files of processes that have ended to those of the dead, and removes them.

    What is told of living processes only, and what is told of each by itself, goes with its process. Who reads for
    long is not waited for: the next call does it.
    """
    left: dict[str, list[Path]] = {}
    for path in place.glob("*.db"):
        kind, _, process = path.stem.rpartition("_")
        if process.isdigit() and not lives(int(process)):
            left.setdefault(kind, []).append(path)
    for kind in [kind for kind in left if kind.startswith("gauge_live")]:
        for path in left.pop(kind):
            path.unlink(missing_ok=True)
    if not left:
        return
    try:
        with lock_of(place) as lock:
            end = time.monotonic() + PATIENCE_SECONDS
            while not is_taken(lock.fileno(), fcntl.LOCK_EX):
                if time.monotonic() > end:
                    return
                time.sleep(STEP_SECONDS)
            for kind, paths in left.items():
                if kind != "gauge_all":
                    add_up(kind, paths, place / f"{kind}_{DEAD}.db")
                for path in paths:
                    path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("metrics of workers that have ended are still in files of their own: %s", error)


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def add_up(kind: str, paths: Iterable[Path], total: Path) -> None:
    """Puts what `paths`, of one kind, say together into `total`, beside what that says already."""
    from prometheus_client.mmap_dict import MmapedDict  # when the variable is set, and only where it is needed

    values: dict[str, tuple[float, float]] = {}
    for path in [total, *paths]:
        for key, value, moment in entries(path):
            values[key] = merged(kind, values[key], (value, moment)) if key in values else (value, moment)
    fresh = total.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    allocate(fresh, sum(len(key.encode()) + ENTRY_BYTES for key in values) + ENTRY_BYTES)
    file = MmapedDict(str(fresh))
    for key, (value, moment) in values.items():
        file.write_value(key, value, moment)
    file.close()
    fresh.replace(total)


def entries(path: Path) -> Iterator[tuple[str, float, float]]:
    """Key, value and moment of each that the file has, as far as it can be read: its process may have been killed."""
    from prometheus_client.mmap_dict import MmapedDict

    try:
        for key, value, moment, _ in MmapedDict.read_all_values_from_file(str(path)) if size_of(path) else ():
            yield key, value, moment
    except (struct.error, RuntimeError, UnicodeDecodeError) as error:
        logger.warning("metrics of %s are lost: %s", path.name, error)


def merged(kind: str, one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Two values, each with its moment, as prometheus_client joins those of two processes."""
    if kind in ("gauge_min", "gauge_max"):
        return min(one, other) if kind == "gauge_min" else max(one, other)
    if kind == "gauge_mostrecent":
        return max(one, other, key=lambda each: each[1])
    return one[0] + other[0], 0.0
