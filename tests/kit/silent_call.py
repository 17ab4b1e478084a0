"""A gRPC call whose message does not arrive."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue

import grpc

SECONDS = 180


class SilentCall:
    """A call that sends no message until it is closed."""

    def __init__(
        self, channel: grpc.Channel, path: bytes, headers: Mapping[str, str] | None = None
    ):
        self._end: SimpleQueue[None] = SimpleQueue()
        metadata = [(name.lower(), value) for name, value in (headers or {}).items()]
        start = channel.stream_unary(path.decode())
        self.result = start.future(iter(self._end.get, None), metadata=metadata, timeout=SECONDS)

    def close(self) -> None:
        self.result.cancel()
        self._end.put(None)
