"""Whether the files that workers load have changed since the first of them did."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

# When a file was written, and its size.
Stamp = tuple[int, int]


class Changes:
    """Of `files`, and of those in `folder`, as each generation of workers found them."""

    def __init__(self, folder: Path, files: Iterable[Path]):
        self._folder, self._files = folder, list(files)
        self._found: dict[int, dict[Path, Stamp]] = {}

    def since(self, generation: int) -> list[Path]:
        """What is new, gone or other than the first worker of that `generation` found it."""
        now = dict(self._look())
        then = self._found.setdefault(generation, now)
        return sorted({path for path, _ in now.items() ^ then.items()})

    def _look(self) -> Iterator[tuple[Path, Stamp]]:
        inside = (Path(place, name) for place, _, names in os.walk(self._folder) for name in names)
        for path in (*self._files, *inside):
            with suppress(OSError):
                status = path.stat()
                yield path, (status.st_mtime_ns, status.st_size)
