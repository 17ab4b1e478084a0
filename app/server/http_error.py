"""Errors for requests that the server itself rejects."""

import json
from http import HTTPStatus


class HttpError(Exception):
    """Error for a request that the server itself rejects.

    The connection is closed after the response.
    """

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = HTTPStatus(status)
        self.body = json.dumps({"error": text}).encode()

    def to_bytes(self) -> bytes:
        """Return the complete response."""
        fields = [
            "Content-Type: application/json",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
        ]
        if self.status is HTTPStatus.SERVICE_UNAVAILABLE:
            fields.append("Retry-After: 1")
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}", *fields, "", ""]
        return "\r\n".join(lines).encode() + self.body
