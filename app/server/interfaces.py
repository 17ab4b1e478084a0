"""Interface between the server and the application."""

from typing import Protocol


class Lifecycle(Protocol):
    """Limits and callbacks of the application for one worker."""

    server_name: str  # value of the response header `Server`
    max_body_bytes: int  # the server rejects larger bodies
    max_body_setting: str  # name of that limit in the error message
    drain_seconds: float  # time after SIGTERM in which requests are accepted
    finish_seconds: int  # time after that for running requests

    def on_stop(self) -> None:
        """Handle SIGTERM. Connections are still accepted for `drain_seconds`."""

    def on_drain_end(self) -> None:
        """Handle the end of `drain_seconds`. New requests are rejected afterward."""

    def is_closing(self) -> bool:
        """Return True if another server of this process still handles requests."""

    def should_accept(self) -> bool:
        """Return True if this worker should accept connections, False if it should leave them to other workers."""

    def is_service_stopping(self) -> bool:
        """Return True if the whole service stops, not only this worker."""
