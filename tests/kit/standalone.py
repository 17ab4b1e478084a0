"""A standalone server: the worker without the rest of the project, and an application that echoes.

start() runs it as a real gunicorn process. The application returns each request as JSON, and
records it. GET /seen returns the requests since the last GET /seen.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.server.interfaces import ServerOptions
from app.server.worker import Worker
from tests.kit.processes import Running, free_ports, started

ROOT = Path(__file__).parents[2]
MAX_BODY_BYTES = 2**20
SECONDS = 60

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], None]]


@dataclass(frozen=True)
class Lifecycle:
    """A lifecycle that serves immediately, and stops without a delay."""

    options: ServerOptions

    def accepts_head(self, environ: dict[str, Any]) -> bool:
        return True

    def should_accept(self) -> bool:
        return True

    def on_stop(self) -> float:
        return 0

    def on_drain_end(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    @property
    def transfer_bytes(self) -> float:
        return math.inf

    def is_service_stopping(self) -> bool:
        return False


class StandaloneWorker(Worker):
    """The worker for any WSGI application."""

    def load_wsgi(self) -> None:
        super().load_wsgi()
        options = ServerOptions(
            server_name="standalone",
            max_body_bytes=MAX_BODY_BYTES,
            max_body_setting="MAX_BODY_BYTES",
            finish_seconds=30,
        )
        self.lifecycle = Lifecycle(options)
        self.accept_connections()


# The requests since the last GET /seen, in the form of describe().
seen: list[dict[str, Any]] = []


def echo(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Return the request as JSON, or all requests since the last call if the path is /seen."""
    if environ["PATH_INFO"] == "/seen":
        requests = list(seen)
        # Another thread may have added a request since then.
        del seen[: len(requests)]
        return respond(start_response, requests)

    request = describe(environ)
    seen.append(request)
    return respond(start_response, request)


def describe(environ: Environ) -> dict[str, Any]:
    """Read the body, and return all that the application sees of the request."""
    headers = {}
    for key, value in environ.items():
        if key.startswith(("HTTP_", "CONTENT_")):
            headers[key] = value

    return {
        "method": environ["REQUEST_METHOD"],
        "script_name": environ["SCRIPT_NAME"],
        "path": environ["PATH_INFO"],
        "uri": environ["RAW_URI"],
        "query": environ["QUERY_STRING"],
        "version": environ["SERVER_PROTOCOL"],
        "scheme": environ["wsgi.url_scheme"],
        "headers": headers,
        "body": environ["wsgi.input"].read(-1).decode("latin-1"),
    }


def respond(start_response: StartResponse, value: Any) -> list[bytes]:
    """Return a value as JSON with status 200."""
    body = json.dumps(value).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response("200 OK", headers)
    return [body]


@contextmanager
def start(*options: str, app: str = f"{__name__}:echo", **environment: Any) -> Iterator[Running]:
    """Run an application under gunicorn with command line options and environment variables."""
    # started() expects both ports, but this server has no gRPC.
    http_port, grpc_port = free_ports(2)
    environment |= {"HTTP_PORT": http_port, "GRPC_PORT": grpc_port, "GUNICORN_CMD_ARGS": ""}

    command = [sys.executable, "-m", "gunicorn"]
    command += ["--config", "/dev/null"]  # not the project's gunicorn.conf.py
    command += ["--bind", f"127.0.0.1:{http_port}"]
    command += ["--worker-class", f"{__name__}.StandaloneWorker"]
    command += ["--threads", "4", "--no-control-socket"]
    command += [*options, app]
    with started(command, ROOT, environment, is_listening) as running:
        yield running
    assert running.process.returncode == 0, running.log()


def is_listening(running: Running) -> bool:
    """Return whether a worker responds, with any status."""
    try:
        with connect(running.http_port) as client:
            client.sendall(b"GET /seen HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return client.recv(1) != b""
    except OSError:
        return False


def connect(port: int) -> socket.socket:
    """Return a connection that sends each piece of data at once."""
    client = socket.create_connection(("127.0.0.1", port), SECONDS)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def exchange(port: int, data: bytes, size: int = 2**20) -> bytes:
    """Send all bytes in pieces of `size`, and shut down the sending side.

    Return everything that the server sends.
    """
    with connect(port) as client:
        try:
            for start_of_piece in range(0, len(data), size):
                client.sendall(data[start_of_piece : start_of_piece + size])
            client.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has closed the connection, and its response may have arrived
        return read_all(client)


def read_all(client: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    pieces = []
    while piece := client.recv(2**16):
        pieces.append(piece)
    return b"".join(pieces)


@dataclass
class Reply:
    """One complete response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class OpenBytes(io.BytesIO):
    """Bytes of several responses. It stays open, although http.client closes it after the first."""

    def makefile(self, mode: str) -> OpenBytes:
        return self

    def close(self) -> None:
        pass


def read_replies(received: bytes, method: str = "GET") -> list[Reply]:
    """Return all responses to requests with this method.

    Raise HTTPException or ValueError if the bytes are not complete responses.
    """
    file = OpenBytes(received)
    replies = []
    while file.tell() < len(received):
        response = http.client.HTTPResponse(file, method=method)  # type: ignore[arg-type]
        response.begin()
        body = response.read()
        replies.append(Reply(response.status, response.headers, body))
    return replies
