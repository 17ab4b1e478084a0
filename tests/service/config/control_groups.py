"""The files in which Linux describes control groups, in a directory of a test."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Layout(NamedTuple):
    """How a container sees its control groups.

    `groups` and `mounts` are lines of /proc/self/cgroup and /proc/self/mountinfo, with {} for the
    directory that stands for /sys/fs/cgroup.
    """

    groups: list[str]
    mounts: list[str]


OTHER_MOUNT = "23 1 0:21 / /tmp rw,relatime shared:1 - tmpfs tmpfs rw,mode=755"
# Version 2, on a host or in a container with a view of all groups.
VERSION_2 = Layout(
    ["0::/pod"],
    [OTHER_MOUNT, "30 23 0:26 / {} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"],
)
# Version 2, in a container with a namespace of its own, which sees its group as the root.
VERSION_2_NAMESPACE = Layout(["0::/"], ["30 23 0:26 / {} ro - cgroup2 cgroup rw"])
VERSION_1 = Layout(
    ["9:name=systemd:/", "4:memory:/pod/main", "2:cpu,cpuacct:/pod/main", "0::/"],
    [
        "32 31 0:29 / {}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
        "35 31 0:32 / {}/memory rw - cgroup cgroup rw,memory",
        "41 31 0:38 / {}/unified rw - cgroup2 cgroup2 rw",
    ],
)
# Version 1 in Docker: the group has its path on the host, and only this group is mounted.
VERSION_1_DOCKER = Layout(
    ["4:memory:/docker/0f1e", "1:cpu:/docker/0f1e"],
    [
        "32 31 0:29 /docker/0f1e {}/cpu ro - cgroup cgroup rw,cpu",
        "35 31 0:32 /docker/0f1e {}/memory ro - cgroup cgroup rw,memory",
    ],
)
# A process that was moved to a group that the container does not see.
MOVED = Layout(["0::/../other"], ["30 23 0:26 / {} ro - cgroup2 cgroup rw"])


def make_process(folder: Path, layout: Layout, files: dict[str, str]) -> Path:
    """Write the files of control groups, and return a directory that stands for /proc/self.

    The names of the files are relative to the directory that stands for /sys/fs/cgroup.
    """
    root = folder / "cgroup"
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    process = folder / "process"
    process.mkdir()
    (process / "cgroup").write_text("\n".join(layout.groups) + "\n")
    mounts = [line.replace("{}", str(root)) for line in layout.mounts]
    (process / "mountinfo").write_text("\n".join(mounts) + "\n")
    return process
