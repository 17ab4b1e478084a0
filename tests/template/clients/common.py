"""What the scripts in this folder share, whatever the model: calls of an asyncio client, errors, the line of success.

A script is run as `python SCRIPT HTTP_ADDRESS GRPC_ADDRESS MODEL_NAME`; iris.py and echo.py have what it sends to which
model. It prints one line and exits with 0 where all is well; anything else is a traceback and exit code 1.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

SECONDS = 30


class Blocking:
    """An asyncio client, `client`, whose coroutine methods are called like the methods of its sync twin."""

    def __init__(self, kind: type, *arguments: Any):
        self._loop = asyncio.new_event_loop()
        self.client = self.run(self._make(kind, arguments))

    async def _make(self, kind: type, arguments: tuple[Any, ...]) -> Any:
        return kind(*arguments)  # within the loop, which some clients look for when made

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
    """Fails unless the block raises one of `kind`, which is in the list afterwards."""
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"


def done(client: str, distribution: str) -> None:
    """The line that says a `client` of an installed `distribution` got what it expected."""
    print(f"{client} {version(distribution)}: ok")
