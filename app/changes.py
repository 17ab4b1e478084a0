"""Which files have changed: those that workers load, and those that `serve --reload` watches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

# What tells a file from what it was.
Mark = tuple[int, int, int]


class Changes:
    """Of `files`, and of those in `folder`, as each generation of workers found them."""

    def __init__(self, folder: Path, files: Iterable[Path]):
        self._folder, self._files = folder, list(files)
        self._found: dict[int, dict[Path, Mark]] = {}

    def since(self, generation: int) -> list[Path]:
        """What is new, gone or other than the first worker of that `generation` found it.

        One that was asked for before is forgotten, but 0, the first: it is asked for again where a later one fails.
        """
        now = marks((*self._files, *files_below(self._folder)))
        self._found = {each: self._found.get(each, now) for each in (0, generation)}
        return sorted(differing(now, self._found[generation]))


def marks(paths: Iterable[Path]) -> dict[Path, Mark]:
    """Those of the files that there are."""
    found = {}
    for path in paths:
        with suppress(OSError):  # gone since, or a link to nothing
            status = path.stat()
            found[path] = status.st_mtime_ns, status.st_size, status.st_ino
    return found


def differing(now: dict[Path, Mark], then: dict[Path, Mark]) -> set[Path]:
    return {path for path, _ in now.items() ^ then.items()}


def files_below(top: Path) -> Iterator[Path]:
    """The files in `top` and below, but those that editors and downloads hide."""
    for folder, folders, names in os.walk(top):
        folders[:] = [each for each in folders if not each.startswith((".", "__pycache__"))]
        yield from (Path(folder, each) for each in names if not each.startswith(".") and not each.endswith("~"))
