"""A proxy whose clients cannot complete large messages."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress


class StallingProxy:
    """Forwards connections to a port, but at most `max_bytes` of what a client sends on each."""

    def __init__(self, port: int, max_bytes: int, stack: ExitStack):
        self._target = ("127.0.0.1", port)
        self._max_bytes = max_bytes
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the test has ended
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._stack.callback(server.close)
                self._stack.callback(client.close)
                self._forward(client, server, self._max_bytes)
                self._forward(server, client, None)

    def _forward(self, source: socket.socket, target: socket.socket, limit: int | None) -> None:
        def run() -> None:
            sent = 0
            with suppress(OSError):  # the call or the test has ended
                while limit is None or sent < limit:
                    data = source.recv(2**16)
                    if not data:
                        return
                    target.sendall(data)
                    sent += len(data)

        threading.Thread(target=run, daemon=True).start()
