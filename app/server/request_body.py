"""The body of a request: one class for each kind of framing (RFC 9112, 6)."""

import sys
from io import BytesIO
from typing import Protocol

from app.server.request_head import Rules

# From this size on, malloc of glibc always maps memory. Smaller blocks can come from freed memory,
# which bytes() would fill with zeros.
MAPPED_BYTES = 2**25


class Body(Protocol):
    """Body of a request, of which a part may be missing.

    received_bytes: size of the part that has arrived
    missing_bytes: size of the rest, or 0 if only llhttp finds the end of the body
    """

    received_bytes: int
    missing_bytes: int

    @property
    def memory_bytes(self) -> int:
        """Size of the memory for the part that has arrived, which may have room for more."""

    def write(self, data: bytes | memoryview) -> None:
        """Add content. Raise HttpError if the body is too large."""

    def open(self) -> BytesIO:
        """Return the complete content."""


class NoBody:
    """Body without content."""

    received_bytes = 0
    missing_bytes = 0
    memory_bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        raise AssertionError("llhttp has found content in a request without a body")

    def open(self) -> BytesIO:
        return BytesIO()


class SizedBody:
    """Body with Content-Length. Its memory grows with the data that arrives."""

    def __init__(self, size: int):
        self.received_bytes = 0
        self.missing_bytes = size
        self._is_mapped = size >= MAPPED_BYTES
        # The system provides mapped memory when it is written. A body that grows would be copied.
        self._content = BytesIO(bytes(size)) if self._is_mapped else BytesIO()

    @property
    def memory_bytes(self) -> int:
        if self._is_mapped:
            return self.received_bytes
        return sys.getsizeof(self._content)

    def write(self, data: bytes | memoryview) -> None:
        self._content.write(data)
        self.received_bytes += len(data)
        self.missing_bytes -= len(data)

    def open(self) -> BytesIO:
        return BytesIO(self._content.getvalue())


class ChunkedBody:
    """Body in chunks, whose size is known at its end."""

    missing_bytes = 0

    def __init__(self, rules: Rules):
        self.received_bytes = 0
        self._rules = rules
        self._content = BytesIO()

    @property
    def memory_bytes(self) -> int:
        return sys.getsizeof(self._content)

    def write(self, data: bytes | memoryview) -> None:
        self._content.write(data)
        self.received_bytes += len(data)
        self._rules.check_body_size(self.received_bytes)

    def open(self) -> BytesIO:
        return BytesIO(self._content.getvalue())
