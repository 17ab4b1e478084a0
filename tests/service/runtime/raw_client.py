"""A client that sends raw bytes, and requests in pieces."""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
from contextlib import ExitStack, closing
from pathlib import Path

from oip_conformance.wires import Grpc
from tests.kit.processes import Running

ROOT = Path(__file__).parents[3]
PATH = "/v2/models/test/infer"
LIMIT = 2**24
# With these settings, a worker has eight threads per protocol. SLOW exceeds the threads of two
# workers.
FEW = {"MAX_CONCURRENCY": 2, "MAX_QUEUE_SIZE": 2}
SLOW = 24
PATIENCE = 60


def body_of(*texts: str) -> bytes:
    tensor = {"name": "x", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    return json.dumps({"inputs": [tensor]}).encode()


def head_of(body: bytes, *lines: str, path: str = PATH, version: str = "1.1") -> bytes:
    """Return the head of a request with the header fields `lines`, or with Content-Length."""
    if not lines:
        lines = (f"Content-Length: {len(body)}",)
    head_lines = [f"POST {path} HTTP/{version}", "Host: x", *lines, "", ""]
    return "\r\n".join(head_lines).encode()


def request_of(*texts: str) -> bytes:
    body = body_of(*texts)
    return head_of(body) + body


def chunked(body: bytes, size: int = 1000, trailer: bytes = b"") -> bytes:
    """Return the body in chunks of `size` bytes, and the last, empty chunk."""
    pieces = []
    for start in range(0, len(body), size):
        chunk = body[start : start + size]
        pieces.append(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    return b"".join(pieces) + b"0\r\n" + trailer + b"\r\n"


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Client:
    """A separate connection.

    If `room` is set, its receive buffer has about that many bytes. With `own_port`, it comes from
    this port.
    """

    def __init__(
        self, port: int, stack: ExitStack, room: int = 0, host: str = "127.0.0.1", own_port: int = 0
    ):
        self.sock = stack.enter_context(socket.socket(family_of(host)))
        if room:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(PATIENCE)
        if own_port:
            self.sock.bind((host, own_port))
        self.sock.connect((host, port))
        self.use(self.sock, stack)

    def use(self, sock: socket.socket, stack: ExitStack) -> None:
        """Send and read through this socket from now on."""
        self.sock = sock
        self.send = sock.sendall
        self.file = stack.enter_context(sock.makefile("rb"))

    def secure(self, context: ssl.SSLContext, stack: ExitStack) -> None:
        """Continue with TLS."""
        self.file.close()
        secure_socket = context.wrap_socket(self.sock, server_hostname="127.0.0.1")
        stack.enter_context(secure_socket)
        self.use(secure_socket, stack)

    def read_response(self) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body of the next response."""
        status_line = self.file.readline()
        status = int(status_line.split()[1])

        headers = {}
        for name, value in http.client.parse_headers(self.file).items():
            headers[name.lower()] = value
        length = int(headers.get("content-length", 0))
        return status, headers, self.file.read(length)

    def texts(self) -> list[str]:
        """Return the texts that the next response echoes."""
        status, _, body = self.read_response()
        assert status == 200, body
        return texts_of(body)

    def has_data_within(self, seconds: float) -> bool:
        """Return whether the server sends data, or ends the connection, in this time."""
        readable, _, _ = select.select([self.sock], [], [], seconds)
        return bool(readable)

    def has_ended(self) -> bool:
        """Return whether the server ends the connection without more data."""
        return self.file.read() == b""


def texts_of(body: bytes) -> list[str]:
    """Return the texts in the only output of a response."""
    (output,) = json.loads(body)["outputs"]
    return output["data"]


def is_served(service: Running) -> bool:
    """Check that new clients of both protocols get responses, whichever worker accepts them.

    Return true, so that a test can assert it.
    """
    for _ in range(4):
        connection = http.client.HTTPConnection(service.http_address, timeout=PATIENCE)
        with closing(connection):
            connection.request("POST", PATH, body_of("a"))
            body = connection.getresponse().read()
            assert texts_of(body) == ["a"]
        with service.own_channel() as channel:
            response = Grpc(channel).infer([("x", "BYTES", [1], ["a"])])
            assert response.outputs == {"y": ("BYTES", [1], [b"a"])}, response
    return True


def split_at(data: bytes, length: int) -> tuple[bytes, bytes]:
    """Return the first `length` bytes, or all but the last ones if it is negative, and the rest."""
    return data[:length], data[length:]


SMALL = request_of("a" * 100)
SMALL_HEAD_LENGTH = SMALL.index(b"\r\n\r\n") + 4
LARGE = request_of("b" * 10**6)
CHUNKED = head_of(b"", "Transfer-Encoding: chunked") + chunked(body_of("c" * 10**5))
# The bytes that a client sends before it pauses, and the rest of its request.
HALVES: dict[str, tuple[bytes, bytes]] = {
    "nothing": split_at(SMALL, 0),
    "one byte": split_at(SMALL, 1),
    "half a head": split_at(SMALL, 40),
    "all but the head's end": split_at(SMALL, SMALL_HEAD_LENGTH - 1),
    "a head": split_at(SMALL, SMALL_HEAD_LENGTH),
    "half a body": split_at(SMALL, -50),
    "half a large body": split_at(LARGE, -500_000),
    "all but the last byte": split_at(LARGE, -1),
    "half a chunked body": split_at(CHUNKED, 50_000),
    "all but the last chunk": split_at(CHUNKED, -5),
    "a request and a half": split_at(SMALL + SMALL, len(SMALL) + 100),
}
