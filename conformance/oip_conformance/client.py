"""REST client with sockets and http.client, because other libraries can hide errors of the server."""

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

from oip_conformance.wires import describe_response

TIMEOUT_SECONDS = 5.0
SHOWN_BYTES = 500


@dataclass
class LastExchange:
    """The last request and the last REST response as truncated text. Several clients can share an instance.

    `messages` contains the error messages of all responses, with their statuses.
    """

    request: str = ""
    response: str = ""
    messages: set[tuple[str, str]] = field(default_factory=set)

    def record_reply(self, reply: Reply) -> None:
        self.response = repr(reply)
        if reply.status_code >= 400 and reply.data.startswith(b'{"error"'):
            with suppress(ValueError):  # a server may send invalid JSON
                self.record_message(str(reply.status_code), reply.json["error"])

    def record_message(self, status: str, message: str) -> None:
        self.messages.add((status, str(message).encode(errors="backslashreplace").decode()))


def shown(octets: bytes, most: int = SHOWN_BYTES) -> str:
    """Return the first `most` bytes as text."""
    head = octets[:most].decode(errors="backslashreplace")
    text = "".join(
        each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in head
    )
    return text if len(octets) <= most else f"{text}... ({len(octets)} bytes)"


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


def content_type(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the Content-Type header for a body, because some servers require it. R18 has separate cases."""
    binary = any(name.lower() == "inference-header-content-length" for name in headers)
    return {"Content-Type": "application/octet-stream" if binary else "application/json"}


class Http:
    """A keep-alive connection to the server at `url`. It opens on demand, and again after the server closes it."""

    def __init__(
        self,
        url: str,
        renewed: bool = False,
        timeout: float = TIMEOUT_SECONDS,
        last: LastExchange | None = None,
    ):
        """With `renewed`, retry a request on a new connection if the server has closed the idle connection."""
        self.renewed, self.timeout, self.last = renewed, timeout, last or LastExchange()
        parts = urlsplit(url)
        self.host, self.port, self.prefix = (
            parts.hostname or "",
            parts.port or 80,
            parts.path.rstrip("/"),
        )
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def open(
        self,
        method: str,
        path: str,
        data: bytes | str | Iterable[bytes] = b"",
        headers: Mapping[str, str | None] | None = None,
        chunked: bool = False,
    ) -> Reply:
        """Send a request and return the reply. Headers with the value None are omitted."""
        text = data.encode() if isinstance(data, str) else data
        body = text if isinstance(text, bytes) else list(text)
        named = {**content_type(headers or {}), **(headers or {})} if body else headers or {}
        given = {name: value for name, value in named.items() if value is not None}
        self.note(method, path, given, body)
        kept = self.connection.sock
        try:
            self.connection.request(
                method, self.prefix + path, body or None, given, encode_chunked=chunked
            )
            reply = read_reply(self.connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            if kept and self.renewed and isinstance(error, (ConnectionResetError, BrokenPipeError)):
                return self.open(method, path, body, headers, chunked)
            raise
        self.last.record_reply(reply)
        return reply

    def note(
        self, method: str, path: str, headers: Mapping[str, str | None], body: bytes | list[bytes]
    ) -> None:
        """Record the request before it is sent."""
        lines = [
            f"{method} {self.prefix}{path}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if isinstance(body, list):
            lines.append(f"({len(body)} pieces, of {sum(map(len, body))} bytes in all)")
            body = b"".join(piece[:SHOWN_BYTES] for piece in body[:SHOWN_BYTES])[:SHOWN_BYTES]
        self.last.response, self.last.request = "", "\n".join([*lines, "", shown(body)]).strip()

    def post(
        self, path: str, data: Any = b"", headers: Mapping[str, str | None] | None = None
    ) -> Reply:
        return self.open("POST", path, data, headers)

    def get(self, path: str, headers: Mapping[str, str | None] | None = None) -> Reply:
        return self.open("GET", path, headers=headers)

    def open_raw(self) -> RawConnection:
        """Open a separate connection for requests that http.client cannot send."""
        return RawConnection(
            socket.create_connection((self.host, self.port), timeout=self.timeout),
            self.prefix,
            self.last,
        )

    def close(self) -> None:
        self.connection.close()


class RawConnection:
    """A raw connection that sends bytes and reads responses."""

    def __init__(self, connection: socket.socket, prefix: str, last: LastExchange | None = None):
        self.connection, self.prefix, self.last = connection, prefix, last or LastExchange()
        self.file = connection.makefile("rb")
        self.pending = b""

    def send(self, *octets: bytes) -> None:
        sent = b"".join(octets)
        self.pending += sent
        self.last.response, self.last.request = "", shown(self.pending, 2 * SHOWN_BYTES)
        self.connection.sendall(sent)

    def head(self, method: str, path: str, **headers: Any) -> bytes:
        """Return the head of a request. `Content_Length=5` sets a header."""
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", "Host: conformance"]
        if method == "POST":
            headers = {"Content_Type": "application/json", **headers}
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def request(self, path: str, body: bytes, **headers: Any) -> bytes:
        return self.head("POST", path, Content_Length=len(body), **headers) + body

    def reply(self) -> Reply:
        """Return the next response, including responses to pipelined requests."""
        response = http.client.HTTPResponse(FileSocket(self.file))  # type: ignore[arg-type]
        response.begin()
        reply = read_reply(response)
        self.pending = b""
        self.last.record_reply(reply)
        return reply

    def interim(self) -> bytes:
        """Return the status line of an interim response."""
        first = self.file.readline()
        while self.file.readline().strip():
            pass
        return first

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
    """A replacement for a socket, so that http.client reads one response and leaves the rest in the file."""

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
        return self._file.readline(-1 if size is None else size)
