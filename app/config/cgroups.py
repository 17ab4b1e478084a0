"""The limits of the container, which Linux keeps in control groups (cgroups).

A group is a directory. Its limits apply to its processes and to the groups inside it, so the limit
of a process is the lowest one of its group and of all groups around it.

| | Version 1 | Version 2 |
|---|---|---|
| CPU cores | `cpu.cfs_quota_us` / `cpu.cfs_period_us` | the two numbers in `cpu.max` |
| Memory in bytes | `memory.limit_in_bytes` | `memory.max` |
| No limit | -1, or a number near 2**63 | `max` |
| Directories | one tree for each controller, such as `memory` | one tree |

Two files of the kernel show where the directories are. A system can use both versions:

    /proc/self/cgroup       4:memory:/kubepods/pod1/main
    /proc/self/mountinfo    35 31 0:32 /kubepods /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory

The first one contains the group of this process in the tree of `memory`. The second one shows that
this tree is mounted from the group `/kubepods` on. So the directory of the group is
`/sys/fs/cgroup/memory/pod1/main`.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PROCESS = Path("/proc/self")
# Larger numbers mean that memory is not limited. The kernel rounds 2**63 - 1 down to whole pages.
LARGEST_LIMIT = 2**62


class Mount(NamedTuple):
    """A tree of groups in the file system. `root` is the group at `directory`."""

    root: PurePosixPath
    directory: Path


class ContainerLimits(NamedTuple):
    """The limits of this process, or None for each that is not set."""

    cores: float | None
    memory_bytes: float | None


def read_limits(process: Path = PROCESS) -> ContainerLimits:
    """Return the limits of the process with this directory in /proc.

    Systems other than Linux have no such directory, and no limits.
    """
    cores = []
    memory_bytes = []
    for directory in _group_directories(process):
        cores.append(_core_limit(directory))
        memory_bytes.append(_memory_limit(directory))
    return ContainerLimits(_lowest(cores), _lowest(memory_bytes))


def _lowest(limits: list[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _core_limit(directory: Path) -> float | None:
    text = _read_text(directory / "cpu.max")
    if not text:
        quota = _read_text(directory / "cpu.cfs_quota_us")
        period = _read_text(directory / "cpu.cfs_period_us")
        text = f"{quota} {period}"
    numbers = text.split()
    if len(numbers) != 2 or numbers[0] in ("max", "-1"):
        return None
    return float(numbers[0]) / float(numbers[1])


def _memory_limit(directory: Path) -> float | None:
    text = _read_text(directory / "memory.max")
    if not text:
        text = _read_text(directory / "memory.limit_in_bytes")
    text = text.strip()
    if text in ("", "max"):
        return None
    limit = int(text)
    return limit if limit < LARGEST_LIMIT else None


def _group_directories(process: Path) -> Iterator[Path]:
    """Yield the directories of the groups of a process, and of all groups around them."""
    mounts = _read_mounts(process)
    for controller, group in _read_groups(process).items():
        mount = mounts.get(controller)
        if mount is None:
            continue

        directory = mount.directory
        # A process that was moved out of the mounted groups has a path with `..`.
        if group.is_relative_to(mount.root) and ".." not in group.parts:
            directory /= group.relative_to(mount.root)
        while directory != mount.directory:
            yield directory
            directory = directory.parent
        yield mount.directory


def _read_groups(process: Path) -> dict[str, PurePosixPath]:
    """Return the group of a process by controller. The key of version 2 is ""."""
    groups = {}
    for line in _read_text(process / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = PurePosixPath(group)
    return groups


def _read_mounts(process: Path) -> dict[str, Mount]:
    """Return the trees of groups that a process sees, by controller. The key of version 2 is ""."""
    mounts = {}
    for line in _read_text(process / "mountinfo").splitlines():
        mount_fields, _, file_system_fields = line.partition(" - ")
        file_system, _, options = file_system_fields.split()
        if file_system == "cgroup":
            controllers = options.split(",")
        elif file_system == "cgroup2":
            controllers = [""]
        else:
            continue

        _, _, _, root, directory, *_ = mount_fields.split()
        for controller in controllers:
            mounts[controller] = Mount(PurePosixPath(root), Path(directory))
    return mounts


def _read_text(file: Path) -> str:
    """Return the text in a file, or "" if the system or the group has no such file."""
    try:
        return file.read_text()
    except OSError:
        return ""
