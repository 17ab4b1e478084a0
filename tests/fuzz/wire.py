"""Generated requests and calls, which are sent over sockets, and expressions to reproduce them."""

from __future__ import annotations

import base64
import http.client
import socket
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from grpc_service import messages
from oip_conformance.client import FileSocket, RawConnection, Reply, read_reply
from tests.fuzz.judge import SERVER_STATUSES, STATUSES, judge_call, judge_reply

RESPONSE_TIMEOUT_SECONDS = 5
CHUNKS_AT_MOST = 2000
SERVICE = f"/{messages.SERVICE_NAME}/"
KNOWN_CALLS = {SERVICE + method.name for method in messages.SERVICE.methods}
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
BROKEN = (OSError, http.client.HTTPException)


class Clients:
    """Keep-alive connections for REST and gRPC, opened on demand."""

    def __init__(self, http_port: int, grpc_port: int):
        self.http_port, self.grpc_port = http_port, grpc_port
        self.raw_connection: RawConnection | None = None
        self.last = b""
        self.channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}", OPTIONS)

    def connect(self) -> RawConnection:
        return RawConnection(
            socket.create_connection(("127.0.0.1", self.http_port), RESPONSE_TIMEOUT_SECONDS), ""
        )

    def hang_up(self) -> None:
        if self.raw_connection:
            self.raw_connection.__exit__()
        self.raw_connection = None

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: Any) -> None:
        self.hang_up()
        self.channel.close()


@dataclass(frozen=True, repr=False)
class HttpRequest:
    """A well-formed request on a keep-alive connection."""

    method: str
    path: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    chunk: int = 0  # chunk size; 0 sends a Content-Length

    def octets(self) -> bytes:
        framing, body = f"Content-Length: {len(self.body)}", self.body
        if self.chunk:
            size = max(self.chunk, len(self.body) // CHUNKS_AT_MOST)
            framing, body = "Transfer-Encoding: chunked", chunked(self.body, size)
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: fuzz", framing]
        lines += [f"{name}: {text}" for name, text in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def send(self, clients: Clients) -> tuple[str, str]:
        octets, kept = self.octets(), clients.raw_connection is not None
        try:
            reply = self.exchange(clients, octets)
        except BROKEN as error:
            clients.hang_up()
            before = (
                f"; the request before on the connection: {expression(clients.last)}"
                if kept
                else ""
            )
            return "no response", f"no response: {error!r}{before}"
        clients.last = octets
        if reply.headers.get("Connection", "").lower() == "close":
            clients.hang_up()
        return judge_reply(self.method, reply)

    def exchange(self, clients: Clients, octets: bytes) -> Reply:
        clients.raw_connection = clients.raw_connection or clients.connect()
        clients.raw_connection.send(octets)
        return read(clients.raw_connection, self.method)

    def __repr__(self) -> str:
        return f"to the port of REST: {expression(self.octets())}"


@dataclass(frozen=True, repr=False)
class Octets:
    """Bytes on a separate connection, which the client then half-closes. The server must close it, too."""

    octets: bytes

    def send(self, clients: Clients) -> tuple[str, str]:
        verdicts = [("closed", "")]
        with clients.connect() as line, suppress(ConnectionResetError):
            with suppress(
                OSError
            ):  # the server can reject the request and close the connection early
                line.send(self.octets)
                line.shutdown_write()
            try:
                while line.file.peek(1):
                    verdicts.append(self.judge(read(line, "GET")))
            except TimeoutError as error:
                verdicts.append(
                    ("no response", f"neither a response nor the end of the connection: {error!r}")
                )
            except http.client.HTTPException as error:
                verdicts.append(("no response", f"a response that is not HTTP: {error!r}"))
        return next((verdict for verdict in verdicts if verdict[1]), verdicts[-1])

    def judge(self, reply: Reply) -> tuple[str, str]:
        return judge_reply("GET", reply, STATUSES | SERVER_STATUSES)

    def __repr__(self) -> str:
        return f"to the port of REST, then end the connection: {expression(self.octets)}"


@dataclass(frozen=True, repr=False)
class Call:
    """A gRPC call with arbitrary bytes as its message."""

    name: str
    body: bytes
    compressed: bool = False

    def send(self, clients: Clients) -> tuple[str, str]:
        invoke = clients.channel.unary_unary(self.name)
        compression = grpc.Compression.Gzip if self.compressed else grpc.Compression.NoCompression
        try:
            invoke(self.body, timeout=RESPONSE_TIMEOUT_SECONDS, compression=compression)
        except grpc.RpcError as error:
            return judge_call(error, self.name in KNOWN_CALLS, len(self.body))
        return judge_call(None, self.name in KNOWN_CALLS, len(self.body))

    def __repr__(self) -> str:
        return f"call {self.name}{' with gzip' if self.compressed else ''}: {expression(self.body)}"


def read(line: RawConnection, method: str) -> Reply:
    response = http.client.HTTPResponse(FileSocket(line.file), method=method)  # type: ignore[arg-type]
    response.begin()
    return read_reply(response)


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])


def expression(octets: bytes) -> str:
    """Return a Python expression for the bytes. Compress long ones."""
    if len(octets) <= 2000:
        return repr(octets)
    return f"zlib.decompress(base64.b85decode({base64.b85encode(zlib.compress(octets, 9))!r}))"
