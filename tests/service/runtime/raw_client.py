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
# With these settings, a worker has eight threads per protocol. SLOW exceeds the threads of two workers.
FEW = {"MAX_CONCURRENCY": 2, "MAX_QUEUE_SIZE": 2}
SLOW = 24
PATIENCE = 60


def body_of(*texts: str) -> bytes:
    tensor = {"name": "x", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    return json.dumps({"inputs": [tensor]}).encode()


def head_of(body: bytes, *lines: str, path: str = PATH, version: str = "1.1") -> bytes:
    lines = (
        f"POST {path} HTTP/{version}",
        "Host: x",
        *(lines or (f"Content-Length: {len(body)}",)),
    )
    return "\r\n".join([*lines, "", ""]).encode()


def request_of(*texts: str) -> bytes:
    body = body_of(*texts)
    return head_of(body) + body


def chunked(body: bytes, size: int = 1000, trailer: bytes = b"") -> bytes:
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    return (
        b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces)
        + b"0\r\n"
        + trailer
        + b"\r\n"
    )


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Client:
    """A separate connection. If `room` is set, its receive buffer has about that many bytes."""

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
        self.sock, self.send = sock, sock.sendall
        self.file = stack.enter_context(sock.makefile("rb"))

    def secure(self, context: ssl.SSLContext, stack: ExitStack) -> None:
        self.file.close()
        self.use(
            stack.enter_context(context.wrap_socket(self.sock, server_hostname="127.0.0.1")), stack
        )

    def read_response(self) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body of the next response."""
        status = int(self.file.readline().split()[1])
        headers = {
            name.lower(): value for name, value in http.client.parse_headers(self.file).items()
        }
        return status, headers, self.file.read(int(headers.get("content-length", 0)))

    def texts(self) -> list[str]:
        """Return the texts that the next response echoes."""
        status, _, body = self.read_response()
        assert status == 200, body
        return texts_of(body)

    def has_data_within(self, seconds: float) -> bool:
        return bool(select.select([self.sock], [], [], seconds)[0])

    def has_ended(self) -> bool:
        return self.file.read() == b""


def texts_of(body: bytes) -> list[str]:
    return json.loads(body)["outputs"][0]["data"]


def is_served(service: Running) -> bool:
    """Check that new clients of both protocols get responses, whichever worker accepts them. Return true."""
    for _ in range(4):
        with closing(
            http.client.HTTPConnection(service.http_address, timeout=PATIENCE)
        ) as connection:
            connection.request("POST", PATH, body_of("a"))
            assert texts_of(connection.getresponse().read()) == ["a"]
        with service.own_channel() as channel:
            response = Grpc(channel).infer([("x", "BYTES", [1], ["a"])])
            assert response.outputs == {"y": ("BYTES", [1], [b"a"])}, response
    return True


SMALL, LARGE = request_of("a" * 100), request_of("b" * 10**6)
CHUNKED = head_of(b"", "Transfer-Encoding: chunked") + chunked(body_of("c" * 10**5))
# The bytes that a client sends before it pauses, and the rest of its request.
HALVES: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", SMALL),
    "one byte": (SMALL[:1], SMALL[1:]),
    "half a head": (SMALL[:40], SMALL[40:]),
    "all but the head's end": (
        SMALL.partition(b"\r\n\r\n")[0] + b"\r\n\r",
        b"\n" + SMALL.partition(b"\r\n\r\n")[2],
    ),
    "a head": tuple(
        part + end
        for part, end in zip(SMALL.partition(b"\r\n\r\n")[::2], (b"\r\n\r\n", b""), strict=True)
    ),
    "half a body": (SMALL[:-50], SMALL[-50:]),
    "half a large body": (LARGE[:-500_000], LARGE[-500_000:]),
    "all but the last byte": (LARGE[:-1], LARGE[-1:]),
    "half a chunked body": (CHUNKED[:50_000], CHUNKED[50_000:]),
    "all but the last chunk": (CHUNKED[:-5], CHUNKED[-5:]),
    "a request and a half": (SMALL + SMALL[:100], SMALL[100:]),
}  # type: ignore[assignment]
