"""REST as sockets and http.client have it: nothing between the suite and the wire that could mend a fault."""

from __future__ import annotations

import http.client
import io
import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

# A server that takes longer over anything in the suite hangs.
PATIENCE_SECONDS = 20


@dataclass
class Reply:
    """One response, read whole."""

    status_code: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def mimetype(self) -> str:
        return self.headers.get_content_type()

    @property
    def content_length(self) -> int:
        return int(self.headers.get("Content-Length", -1))


def read_reply(response: http.client.HTTPResponse) -> Reply:
    return Reply(response.status, response.headers, response.read())


def content_type(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """The Content-Type of a body, without which some servers read none; R18 has cases of its own."""
    binary = any(name.lower() == "inference-header-content-length" for name in headers)
    return {"Content-Type": "application/octet-stream" if binary else "application/json"}


class Http:
    """A kept-alive connection to the server at `url`, made when needed, and again where the server closed it."""

    def __init__(self, url: str, renewed: bool = False):
        """With `renewed`, a request that meets a connection closed since the last one is sent again on a new one."""
        self.renewed = renewed
        parts = urlsplit(url)
        self.host, self.port, self.prefix = parts.hostname or "", parts.port or 80, parts.path.rstrip("/")
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_SECONDS)

    def open(
        self,
        method: str,
        path: str,
        data: bytes | str | Iterable[bytes] = b"",
        headers: Mapping[str, str | None] | None = None,
        chunked: bool = False,
    ) -> Reply:
        """The reply to one request; a header whose value is None is left out."""
        body = data.encode() if isinstance(data, str) else data
        named = {**content_type(headers or {}), **(headers or {})} if body else headers or {}
        given = {name: value for name, value in named.items() if value is not None}
        kept = self.connection.sock
        try:
            self.connection.request(method, self.prefix + path, body or None, given, encode_chunked=chunked)
            return read_reply(self.connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            if kept and self.renewed and isinstance(error, (ConnectionResetError, BrokenPipeError)):
                return self.open(method, path, data, headers, chunked)
            raise

    def post(self, path: str, data: Any = b"", headers: Mapping[str, str | None] | None = None) -> Reply:
        return self.open("POST", path, data, headers)

    def get(self, path: str, headers: Mapping[str, str | None] | None = None) -> Reply:
        return self.open("GET", path, headers=headers)

    def line(self) -> Line:
        """A connection of its own, for what http.client would not send."""
        return Line(socket.create_connection((self.host, self.port), timeout=PATIENCE_SECONDS), self.prefix)

    def close(self) -> None:
        self.connection.close()


class Line:
    """A bare connection: bytes out, responses in."""

    def __init__(self, connection: socket.socket, prefix: str):
        self.connection, self.prefix = connection, prefix
        self.file = connection.makefile("rb")

    def send(self, *octets: bytes) -> None:
        self.connection.sendall(b"".join(octets))

    def head(self, method: str, path: str, **headers: Any) -> bytes:
        """The head of a request; `Content_Length=5` is a header."""
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", "Host: conformance"]
        if method == "POST":
            headers = {"Content_Type": "application/json", **headers}
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def request(self, path: str, body: bytes, **headers: Any) -> bytes:
        return self.head("POST", path, Content_Length=len(body), **headers) + body

    def reply(self) -> Reply:
        """The next response, one of several where they were asked for in one go."""
        response = http.client.HTTPResponse(Kept(self.file))  # type: ignore[arg-type]
        response.begin()
        return read_reply(response)

    def interim(self) -> bytes:
        """The status line of an interim response, which has no body."""
        first = self.file.readline()
        while self.file.readline().strip():
            pass
        return first

    def ended(self) -> bool:
        """Whether the server closes the connection without another byte."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def end(self) -> None:
        """Says that nothing more will be sent."""
        self.connection.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()
        self.connection.close()


class Kept:
    """Stands in for a socket: http.client reads one response of the file and leaves the rest to the next."""

    def __init__(self, file: io.BufferedReader):
        self.file = file

    def makefile(self, mode: str) -> Any:
        return Unclosed(self.file)


class Unclosed(io.RawIOBase):
    """`file`, which closing leaves open."""

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
