"""REST client with sockets and http.client, because other libraries can hide server errors."""

from __future__ import annotations

import http.client
import io
import json
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from oip_conformance.texts import MAX_EXCERPT_BYTES, show_bytes
from oip_conformance.wires import HEADER_LENGTH, describe_response

TIMEOUT_SECONDS = 5.0
# Errors of a request on an idle connection that the server has closed.
IDLE_CONNECTION_ERRORS = (ConnectionResetError, BrokenPipeError)


@dataclass
class LastExchange:
    """The last request and the last REST response as truncated text. Clients can share an instance.

    `messages` contains the error messages of all responses, with their statuses.
    """

    request: str = ""
    response: str = ""
    messages: set[tuple[str, str]] = field(default_factory=set)

    def record_request(self, text: str) -> None:
        """Record a request that is sent next. It has no response yet."""
        self.request = text
        self.response = ""

    def record_reply(self, reply: Reply) -> None:
        self.response = repr(reply)
        if reply.status_code >= 400 and reply.data.startswith(b'{"error"'):
            with suppress(ValueError):  # a server may send invalid JSON
                self.record_message(str(reply.status_code), reply.json["error"])

    def record_message(self, status: str, message: str) -> None:
        """Record an error message. Unpaired surrogates, which JSON can contain, are escaped."""
        text = str(message).encode(errors="backslashreplace").decode()
        self.messages.add((status, text))


@dataclass(repr=False)
class Reply:
    """A complete response."""

    status_code: int
    headers: http.client.HTTPMessage
    data: bytes

    def __repr__(self) -> str:
        return describe_response(self)

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.data)
        except ValueError:
            raise ValueError(f"expected JSON, got {self}") from None

    @property
    def mimetype(self) -> str:
        return self.headers.get_content_type()

    @property
    def content_length(self) -> int:
        return int(self.headers.get("Content-Length", -1))


def read_reply(response: http.client.HTTPResponse) -> Reply:
    return Reply(response.status, response.headers, response.read())


def default_content_type(headers: Mapping[str, str | None]) -> str:
    """Return the Content-Type for a body, because some servers require it. R18 has other cases."""
    for name in headers:
        if name.lower() == HEADER_LENGTH.lower():
            return "application/octet-stream"
    return "application/json"


class Http:
    """A keep-alive connection to the server at `url`.

    It opens on demand, and again after the server closes it. With `reconnects`, a request that
    fails because the server has closed the idle connection is sent again on a new one.
    """

    def __init__(
        self,
        url: str,
        reconnects: bool = False,
        timeout: float = TIMEOUT_SECONDS,
        last_exchange: LastExchange | None = None,
    ):
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.port = parts.port or 80
        self.prefix = parts.path.rstrip("/")
        self.reconnects = reconnects
        self.timeout = timeout
        self.last_exchange = last_exchange or LastExchange()
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def open(
        self,
        method: str,
        path: str,
        data: bytes | str | Iterable[bytes] = b"",
        headers: Mapping[str, str | None] | None = None,
        chunked: bool = False,
    ) -> Reply:
        """Send a request and return the reply.

        A body that is an iterable is sent piece by piece. Headers with the value None are omitted.
        """
        body: bytes | list[bytes]
        if isinstance(data, str):
            body = data.encode()
        elif isinstance(data, bytes):
            body = data
        else:
            body = list(data)

        headers = headers or {}
        fields: dict[str, str | None] = {}
        if body:
            fields["Content-Type"] = default_content_type(headers)
        fields.update(headers)
        present = {name: value for name, value in fields.items() if value is not None}
        self.record_request(method, path, headers=present, body=body)

        was_open = self.connection.sock is not None
        url = self.prefix + path
        try:
            self.connection.request(method, url, body or None, present, encode_chunked=chunked)
            reply = read_reply(self.connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            if was_open and self.reconnects and isinstance(error, IDLE_CONNECTION_ERRORS):
                return self.open(method, path, body, headers, chunked)
            raise
        self.last_exchange.record_reply(reply)
        return reply

    def record_request(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | list[bytes]
    ) -> None:
        """Record the request before it is sent."""
        lines = [f"{method} {self.prefix}{path}"]
        for name, value in headers.items():
            lines.append(f"{name}: {value}")

        if isinstance(body, list):
            size = sum(len(piece) for piece in body)
            lines.append(f"({len(body)} pieces, of {size} bytes in all)")
            # The pieces can be large. Only their beginnings are joined.
            beginnings = [piece[:MAX_EXCERPT_BYTES] for piece in body[:MAX_EXCERPT_BYTES]]
            body = b"".join(beginnings)[:MAX_EXCERPT_BYTES]
        lines += ["", show_bytes(body)]
        self.last_exchange.record_request("\n".join(lines).strip())

    def post(
        self, path: str, data: Any = b"", headers: Mapping[str, str | None] | None = None
    ) -> Reply:
        return self.open("POST", path, data, headers)

    def get(self, path: str, headers: Mapping[str, str | None] | None = None) -> Reply:
        return self.open("GET", path, headers=headers)

    def open_raw(self) -> RawConnection:
        """Open a separate connection for requests that http.client cannot send."""
        connection = socket.create_connection((self.host, self.port), timeout=self.timeout)
        return RawConnection(connection, self.prefix, self.last_exchange)

    def close(self) -> None:
        self.connection.close()


class RawConnection:
    """A raw connection that sends bytes and reads responses."""

    def __init__(
        self, connection: socket.socket, prefix: str, last_exchange: LastExchange | None = None
    ):
        self.connection = connection
        self.prefix = prefix
        self.last_exchange = last_exchange or LastExchange()
        self.file = connection.makefile("rb")
        # Bytes since the last response, which can be a request in several parts.
        self.pending = b""

    def send(self, *octets: bytes) -> None:
        data = b"".join(octets)
        self.pending += data
        self.last_exchange.record_request(show_bytes(self.pending, 2 * MAX_EXCERPT_BYTES))
        self.connection.sendall(data)

    def head(self, method: str, path: str, **headers: Any) -> bytes:
        """Return the head of a request. `Content_Length=5` sets a header."""
        if method == "POST":
            headers = {"Content_Type": "application/json", **headers}
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", "Host: conformance"]
        for name, value in headers.items():
            lines.append(f"{name.replace('_', '-')}: {value}")
        return "\r\n".join([*lines, "", ""]).encode()

    def request(self, path: str, body: bytes, **headers: Any) -> bytes:
        """Return a POST request with its body."""
        return self.head("POST", path, Content_Length=len(body), **headers) + body

    def reply(self) -> Reply:
        """Return the next response, including responses to pipelined requests."""
        response = http.client.HTTPResponse(FileSocket(self.file))  # type: ignore[arg-type]
        response.begin()
        reply = read_reply(response)
        self.pending = b""  # the bytes of requests without a response
        self.last_exchange.record_reply(reply)
        return reply

    def interim_status_line(self) -> bytes:
        """Read an interim response, and return its status line."""
        status_line = self.file.readline()
        while self.file.readline().strip():
            pass
        return status_line

    def is_closed(self) -> bool:
        """Return True if the server closes the connection without sending another byte."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def shutdown_write(self) -> None:
        """Shut down the sending side of the connection."""
        self.connection.shutdown(socket.SHUT_WR)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()
        self.connection.close()


class FileSocket:
    """A replacement for a socket, so that http.client leaves later responses in the file."""

    def __init__(self, file: io.BufferedReader):
        self.file = file

    def makefile(self, mode: str) -> Any:
        return UnclosedFile(self.file)


class UnclosedFile(io.RawIOBase):
    """A wrapper for `file` whose close() does not close the file."""

    def __init__(self, file: io.BufferedReader):
        self._file = file

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)

    def readline(self, size: int | None = -1) -> bytes:
        if size is None:
            size = -1
        return self._file.readline(size)
