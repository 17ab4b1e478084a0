"""The two interfaces between the server and the application. Neither knows more of the other."""

from __future__ import annotations

from typing import Protocol


class Server(Protocol):
    """A worker, of our own class or of gunicorn's. `alive` is false after a stop signal."""

    age: int
    ppid: int
    alive: bool


class Lifecycle(Protocol):
    """The parts of a service that start and stop with a worker."""

    server_name: str  # the value of the header `Server`
    max_body_bytes: int  # the server rejects larger bodies
    max_body_setting: str  # the name of that limit, for the error message
    drain_seconds: float  # time from SIGTERM to the first rejection
    finish_seconds: int  # time after that for running requests

    def on_stop(self) -> None:
        """Handle SIGTERM. Connections are still accepted for `drain_seconds`."""

    def on_drain_end(self) -> None:
        """Handle the end of `drain_seconds`. New requests are rejected afterward."""

    def is_closing(self) -> bool:
        """Return whether something else than the server still handles requests."""

    def should_accept(self) -> bool:
        """Return whether this worker should accept connections rather than leave them to others."""

    def is_service_stopping(self) -> bool:
        """Return whether no other worker will follow."""
