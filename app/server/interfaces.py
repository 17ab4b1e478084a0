"""Interface between the server and the application."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Fixed options of the application.

    server_name: value of the response header `Server`
    max_body_bytes: limit for the body of a request. Larger bodies are rejected.
    max_body_setting: name of that limit in the error message
    finish_seconds: time for running requests after the drain. See Lifecycle.
    """

    server_name: str
    max_body_bytes: int
    max_body_setting: str
    finish_seconds: float


class Lifecycle(Protocol):
    """Decisions of the application in one worker.

    Any thread can call accepts_head(). The main thread of the worker calls the other methods. Each
    one returns immediately, except that on_stop() may wait for up to a second. The worker stops in
    three steps:

    1. It calls on_stop(), and serves new connections for the returned time, the drain.
    2. It calls on_drain_end(). If is_service_stopping() is true, no other worker serves the
       connections that are already in the queues of the listening sockets, so this worker serves
       them.
    3. It accepts no more connections, and waits until all requests have been answered and
       is_closing() is false, but at most for `finish_seconds`.
    """

    @property
    def options(self) -> ServerOptions: ...

    @property
    def transfer_bytes(self) -> float:
        """The limit for the memory of incomplete requests and unsent responses, or math.inf.

        It may change at any time, such as when the application knows how much memory it needs
        itself. Without one, as many messages of `max_body_bytes` are possible as the worker has
        threads.
        """

    def accepts_head(self, environ: dict[str, Any]) -> bool:
        """Return False if the application will reject a request with this head, such as one without
        a valid key.

        The server then does not receive its body: it calls the application with an empty one, and
        closes the connection after the response. It calls this method only for requests with a
        body.
        """

    def should_accept(self) -> bool:
        """Return False if this worker should leave new connections to other workers."""

    def on_stop(self) -> float:
        """Prepare the stop. Return the duration of the drain in seconds."""

    def on_drain_end(self) -> None:
        """Reject new requests of other servers in this process."""

    def is_closing(self) -> bool:
        """Return True if another server of this process still handles requests."""

    def is_service_stopping(self) -> bool:
        """Return True if the whole service stops, not only this worker."""
