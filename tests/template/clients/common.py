"""Helpers for the client scripts in this directory: a blocking wrapper and error checks."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 30


class Blocking:
    """Wrap an asyncio client so that its coroutine methods can be called like those of a synchronous client."""

    def __init__(self, kind: type, *arguments: Any):
        self._loop = asyncio.new_event_loop()
        self.client = self.run(self._make(kind, arguments))

    async def _make(self, kind: type, arguments: tuple[Any, ...]) -> Any:
        return kind(*arguments)  # some clients need a running event loop in their constructor

    def run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(coroutine)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        return lambda *args, **kwargs: self.run(method(*args, **kwargs))

    def __enter__(self) -> "Blocking":
        return self

    def __exit__(self, *_: Any) -> None:
        self.run(self.client.close())
        self._loop.close()


@contextmanager
def raises(kind: type[Exception]) -> Iterator[list[Exception]]:
    """Fail unless the block raises an exception of `kind`, and add it to the list."""
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
