"""The interfaces between the server and the application that it serves. Neither knows more of the other."""

from __future__ import annotations

from typing import Protocol


class Server(Protocol):
    """The services of a worker. Each connection of our own worker also has release_thread(), see app.recorder."""

    age: int
    ppid: int

    @property
    def alive(self) -> bool:
        """Whether the worker has not been told to stop."""

    def accept_connections(self) -> None:
        """Accept connections from now on. A server that always does ignores it."""


class Lifecycle(Protocol):
    """What happens beside the server as a worker starts and stops.

    server_name: the value of the header `Server`
    max_body_bytes: larger bodies are not waited for
    drain_seconds: time between SIGTERM and the first refusal, while connections are still accepted
    finish_seconds: time that running requests get after that
    """

    server_name: str
    max_body_bytes: int
    drain_seconds: float
    finish_seconds: int

    def start(self) -> None:
        """Start what else a worker does, without blocking. gunicorn's hook post_worker_init calls this.

        It calls Server.accept_connections() when connections can be accepted.
        """

    def on_stop(self) -> None:
        """Handle the begin of a stop. Requests are still accepted for `drain_seconds`."""

    def on_close(self) -> None:
        """Handle the end of `drain_seconds`. New requests are refused from now on."""

    def is_closing(self) -> bool:
        """Return whether something else than the server still handles requests."""

    def is_needed(self) -> bool:
        """Return whether this worker should accept connections rather than leave them to others."""

    def is_last(self) -> bool:
        """Return whether no other worker will follow."""
