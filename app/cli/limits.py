"""What doctor looks at in the machine: cores, memory, files, and the ports."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.cli.common import Failure
from app.cli.findings import ERROR, OK, WARNING, Finding
from app.cli.options import find, own_model
from app.config import Settings
from app.machine import ALLOCATOR, CGROUP, MORE_FILES, connections_of, quota, usable_cores
from app.metricfiles import MEMORY, WORKER_BYTES
from app.probe import answers
from app.transport import try_to_listen

MIB = 2**20
# What the first worker takes without a model, with the master, and what each further one.
FIRST_BYTES, FURTHER_BYTES = 75 * MIB, 32 * MIB
FEW_CONNECTIONS = 1024
LISTENS = "0A"


def cores() -> Iterator[Finding]:
    granted = quota(CGROUP)
    limit = f", the control group grants {granted:g}" if granted else ""
    yield Finding("cores", OK, f"{usable_cores()} of {os.cpu_count()}{limit}")


def memory(settings: Settings, cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> Iterator[Finding]:
    limit, used = cgroup_memory(cgroup)
    kilobytes = dict(line.split()[:2] for line in meminfo.read_text().splitlines()) if meminfo.exists() else {}
    free = int(kilobytes.get("MemAvailable:", 0)) * 1024
    if limit:
        free = min(free, limit - used)
    if not free:
        return
    text = f"{free // MIB:,} MiB free" + (f", the control group has {limit // MIB:,} MiB" if limit else "")
    needed = FIRST_BYTES + (settings.workers - 1) * FURTHER_BYTES
    if free < needed:
        advice = f"{settings.workers} workers take {needed // MIB:,} MiB and their models"
        yield Finding("memory", WARNING, text, f"{advice}: fewer WORKERS, or PRELOAD=on")
    else:
        yield Finding("memory", OK, text)


def cgroup_memory(cgroup: Path) -> tuple[int, int]:
    """The limit of the control group, 0 for none, and what of it is used."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # "max" is no number
            found = int((cgroup / limit).read_text())
            return (found, int((cgroup / used).read_text())) if found < 2**60 else (0, 0)
    return 0, 0


def open_files() -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        yield Finding("open files", OK, "no limit")
        return
    connections = connections_of(hard)
    text = f"{hard:,}: {connections:,} connections of REST a worker"
    if connections < FEW_CONNECTIONS:
        yield Finding("open files", WARNING, text, MORE_FILES)
    else:
        yield Finding("open files", OK, text)


def shared_memory(settings: Settings) -> Iterator[Finding]:
    needed = settings.workers * WORKER_BYTES
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        free = shutil.disk_usage(MEMORY).free
        text = f"{free // MIB:,} MiB free, metrics take {max(1, needed // MIB)}"
        if free > needed:
            yield Finding(str(MEMORY), OK, text)
        else:
            yield Finding(str(MEMORY), WARNING, text, "metrics go to the disk: give it more, as --shm-size does")
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        yield Finding("temporary files", ERROR, "no folder can be written to", "mount one at /tmp, or set TMPDIR")


def allocator() -> Iterator[Finding]:
    given = [f"{name}={os.environ[name]}" for name in ALLOCATOR if name in os.environ]
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        yield Finding("malloc", WARNING, "not glibc's", "large requests are slower: an image of Debian's has glibc")
    else:
        yield Finding("malloc", OK, f"glibc's, with {', '.join(given)}" if given else "glibc's, set at the start")


def ports(settings: Settings) -> Iterator[Finding]:
    is_ours = has_our_model(settings)
    for name, port in (("HTTP_PORT", settings.http_port), ("GRPC_PORT", settings.grpc_port)):
        try:
            try_to_listen(settings.host, port)
        except OSError as error:
            owner = who_listens(port)
            yield taken(name, port, error, owner, is_ours and owner == who_listens(settings.http_port))
        else:
            yield Finding(name, OK, f"{port} is free")


def has_our_model(settings: Settings) -> bool:
    """Whether what answers on HTTP_PORT is this project's service, as far as it says."""
    if not answers(settings, "/v2/health/live"):
        return False
    name = own_model(settings)
    if name is None:
        return True
    service = find(None, None, model=name)
    try:
        status = service.ask("GET", service.model_path()).status
    except Failure:
        return settings.tls_client_ca is not None  # which this command shows no certificate to
    return status == 200 or (status == 401 and settings.api_keys_file is not None)


def taken(name: str, port: int, error: OSError, owner: Path | None, is_ours: bool) -> Finding:
    if error.errno != errno.EADDRINUSE:
        return Finding(
            name, ERROR, f"{port}: {error.strerror}", "HOST and the ports must be this machine's, and allowed"
        )
    text = f"{port} is taken" + (f" by {command_of(owner)[:120]} (process {owner.name})" if owner else "")
    if is_ours:
        return Finding(name, OK, f"{text}: the service runs")
    return Finding(name, ERROR, text, f"end that, or set {name}")


def who_listens(port: int) -> Path | None:
    """The process that does, in /proc, where this user may know: of a master and its workers the master."""
    sockets = {f"socket:[{inode}]" for inode in listening(port)}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        with suppress(OSError):
            if any(os.readlink(each) in sockets for each in (process / "fd").iterdir()):
                return topmost(process)
    return None


def topmost(process: Path) -> Path:
    """The first of its parents with the same command line; one that ends would be started again."""
    parent = Path("/proc", (process / "stat").read_text().rpartition(")")[2].split()[1])
    return topmost(parent) if command_of(parent) == command_of(process) else process


def command_of(process: Path) -> str:
    with suppress(OSError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on `port`, by Linux' table of them."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == LISTENS and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]
