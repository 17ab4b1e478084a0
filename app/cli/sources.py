"""The bytes of a file or of stdin."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.cli import interrupts
from app.cli.common import Failure

HEAD_BYTES = 2**20
GZIP = b"\x1f\x8b"
PATIENCE_SECONDS = 0.2


class File:
    """The file at `path`, or stdin for -; it may be looked into before it is read."""

    def __init__(self, path: str):
        try:
            self.raw: Any = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - for the process
            self.size = Path(path).stat().st_size if path != "-" else 0
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None
        self.name = "stdin" if path == "-" else path
        self.head, self.taken = b"", 0
        self.error: BaseException | None = None
        self.watch: Callable[[bytes], None] | None = None
        self.pipe = 0 if path == "-" and has_descriptor(self.raw) else None

    def peek(self) -> bytes:
        """The first bytes, up to the last line that is whole among them, if it is not the first."""
        self.head = read_fully(self, HEAD_BYTES)
        self.taken = 0
        if self.head.startswith(GZIP):
            raise Failure(f"{self.name}: compressed by gzip; zcat FILE | ... infer - --format csv, or jsonl")
        return self.head if len(self.head) < HEAD_BYTES else self.head[: self.head.rfind(b"\n") + 1] or self.head

    def read(self, size: int = -1) -> bytes:
        """Some bytes, none at the end; it keeps the error, which pandas makes one of its own."""
        try:
            interrupts.check()
            if self.head:
                size = len(self.head) if size < 0 else size
                taken, self.head = self.head[:size], self.head[size:]
            else:
                taken = self.take(size)
            if self.watch:
                self.watch(taken)
        except BaseException as error:
            self.error = error
            raise
        self.taken += len(taken)
        return taken

    def take(self, size: int) -> bytes:
        if self.pipe is None:
            return self.raw.read(size)
        while not select.select([self.pipe], [], [], PATIENCE_SECONDS)[0]:
            pass  # a signal just before a read that blocks would not be seen
        return os.read(self.pipe, size if size >= 0 else HEAD_BYTES)

    def readable(self) -> bool:
        return True

    def __iter__(self) -> Iterator[bytes]:
        """Its lines."""
        rest = b""
        while piece := self.read(HEAD_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def part_read(self) -> float | None:
        return min(self.taken / self.size, 1) if self.size else None

    def close(self) -> None:
        if self.name != "stdin":
            self.raw.close()


def has_descriptor(stream: Any) -> bool:
    try:
        return stream.fileno() == 0
    except OSError:
        return False


def read_fully(file: Any, size: int) -> bytes:
    """As many bytes, or as there are."""
    pieces = []
    while size > 0 and (piece := file.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
