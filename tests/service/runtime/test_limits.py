"""Slow, silent, excessive and very many clients, which must not delay other clients."""

from __future__ import annotations

import gzip
import http.client
import json
import resource
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpc_service.messages import ModelInferRequest
from grpc_service.pool import MAX_STREAMS
from tests.service.processes import Running, free_ports, gunicorn, started, wait_for
from tests.service.scrapes import scrape
from tests.service.wires import Grpc

ROOT = Path(__file__).parents[3]
PATH = "/v2/models/test/infer"
LIMIT = 2**24
# With these settings, a worker has eight threads per protocol. SLOW exceeds the threads of two workers.
FEW = {"MAX_CONCURRENCY": 2, "MAX_QUEUE_SIZE": 2}
SLOW = 24
PATIENCE = 60
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A BYTES echo with two workers and few threads."""
    with gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=2, MAX_REQUEST_BYTES=LIMIT, **FEW) as service:
        yield service


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:hasty()", WORKERS=1, **FEW) as service:
        yield service


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def body_of(*texts: str) -> bytes:
    tensor = {"name": "x", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    return json.dumps({"inputs": [tensor]}).encode()


def head_of(body: bytes, *lines: str, path: str = PATH, version: str = "1.1") -> bytes:
    lines = (f"POST {path} HTTP/{version}", "Host: x", *(lines or (f"Content-Length: {len(body)}",)))
    return "\r\n".join([*lines, "", ""]).encode()


def request_of(*texts: str) -> bytes:
    body = body_of(*texts)
    return head_of(body) + body


def chunked(body: bytes, size: int = 1000, trailer: bytes = b"") -> bytes:
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n" + trailer + b"\r\n"


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Client:
    """A separate connection. If `room` is set, its receive buffer has about that many bytes."""

    def __init__(self, port: int, stack: ExitStack, room: int = 0, host: str = "127.0.0.1", own_port: int = 0):
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
        self.use(stack.enter_context(context.wrap_socket(self.sock, server_hostname="127.0.0.1")), stack)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body of the next response."""
        status = int(self.file.readline().split()[1])
        headers = {name.lower(): value for name, value in http.client.parse_headers(self.file).items()}
        return status, headers, self.file.read(int(headers.get("content-length", 0)))

    def texts(self) -> list[str]:
        """Return the texts that the next response echoes."""
        status, _, body = self.answer()
        assert status == 200, body
        return texts_of(body)

    def hears_within(self, seconds: float) -> bool:
        return bool(select.select([self.sock], [], [], seconds)[0])

    def has_ended(self) -> bool:
        return self.file.read() == b""


def texts_of(body: bytes) -> list[str]:
    return json.loads(body)["outputs"][0]["data"]


def is_served(service: Running) -> bool:
    """Check that new clients of both protocols get responses, whichever worker accepts them. Return true."""
    for _ in range(4):
        with closing(http.client.HTTPConnection(service.http, timeout=PATIENCE)) as connection:
            connection.request("POST", PATH, body_of("a"))
            assert texts_of(connection.getresponse().read()) == ["a"]
        with service.own_channel() as channel:
            answer = Grpc(channel).infer([("x", "BYTES", [1], ["a"])])
            assert answer.outputs == {"y": ("BYTES", [1], [b"a"])}, answer
    return True


SMALL, LARGE = request_of("a" * 100), request_of("b" * 10**6)
CHUNKED = head_of(b"", "Transfer-Encoding: chunked") + chunked(body_of("c" * 10**5))
# The bytes that a client sends before it pauses, and the rest of its request.
HALVES: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", SMALL),
    "one byte": (SMALL[:1], SMALL[1:]),
    "half a head": (SMALL[:40], SMALL[40:]),
    "all but the head's end": (SMALL.partition(b"\r\n\r\n")[0] + b"\r\n\r", b"\n" + SMALL.partition(b"\r\n\r\n")[2]),
    "a head": tuple(
        part + end for part, end in zip(SMALL.partition(b"\r\n\r\n")[::2], (b"\r\n\r\n", b""), strict=True)
    ),
    "half a body": (SMALL[:-50], SMALL[-50:]),
    "half a large body": (LARGE[:-500_000], LARGE[-500_000:]),
    "all but the last byte": (LARGE[:-1], LARGE[-1:]),
    "half a chunked body": (CHUNKED[:50_000], CHUNKED[50_000:]),
    "all but the last chunk": (CHUNKED[:-5], CHUNKED[-5:]),
    "a request and a half": (SMALL + SMALL[:100], SMALL[100:]),
}  # type: ignore[assignment]


@pytest.mark.parametrize("name", HALVES)
def test_slow_clients_delay_no_others(running: Running, stack: ExitStack, name: str) -> None:
    """Clients that pause do not delay others, even if they outnumber the threads, and get their responses later."""
    first, rest = HALVES[name]
    clients = [Client(running.http_port, stack) for _ in range(SLOW)]
    for client in clients:
        client.send(first)
    assert is_served(running)
    for client in clients:
        client.send(rest)
    for client in clients:
        for _ in range(2 if name == "a request and a half" else 1):
            status, _, body = client.answer()
            assert status == 200
        assert texts_of(body)[0] in ("a" * 100, "b" * 10**6, "c" * 10**5)


def test_requests_sent_byte_by_byte(running: Running, stack: ExitStack) -> None:
    """Clients that send their requests byte by byte at the same time get responses."""
    clients = [Client(running.http_port, stack) for _ in range(SLOW)]
    for index in range(len(SMALL)):
        for client in clients:
            client.send(SMALL[index : index + 1])
        if index % 60 == 0:
            assert is_served(running)
    assert {client.texts()[0] for client in clients} == {"a" * 100}


def test_slow_readers_delay_no_others(running: Running, stack: ExitStack) -> None:
    """Clients that read large responses late do not delay others, even if they outnumber the threads."""
    text = "d" * (10 * 2**20)
    clients = [Client(running.http_port, stack, room=2**16) for _ in range(SLOW // 2 + 6)]
    for client in clients:
        client.send(request_of(text))
    assert is_served(running)
    for client in clients:
        assert client.texts() == [text]


@pytest.mark.parametrize("count", [SLOW, 100])
def test_slow_readers_of_streams_delay_no_others(stack: ExitStack, count: int) -> None:
    """Slow readers of streams delay no other clients. If there are very many, some get incomplete responses."""
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:streaming()", WORKERS=1, **FEW))
    clients = [Client(service.http_port, stack, room=2**16) for _ in range(count)]
    for client in clients:
        client.send(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    for client in clients[-8:]:
        assert client.hears_within(PATIENCE)
        assert is_served(service)
    expected = [b"%-1048576d" % index for index in range(20)]
    whole = [pieces(client) == expected for client in clients]
    assert all(whole) if count == SLOW else sum(whole) > SLOW
    assert is_served(service)


def pieces(client: Client) -> list[bytes]:
    """Return the chunks of the response, or an empty list if the connection fails."""
    try:
        client.answer()
        found = []
        while size := int(client.file.readline() or b"0", 16):
            found.append(client.file.read(size + 2)[:-2])
        return found
    except OSError:
        return []


def test_unread_stream_times_out(hasty: Running, stack: ExitStack) -> None:
    """The server closes the connection of a client that does not read the next chunk in time."""
    clients = [Client(hasty.http_port, stack, room=4096) for _ in range(4)]
    for client in clients:
        client.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.hears_within(PATIENCE)
    wait_for(lambda: not connections_of(hasty.http_port))
    assert is_served(hasty)


def test_thousand_idle_connections(running: Running, stack: ExitStack) -> None:
    """1,000 idle connections to each port do not delay other clients, and those to the REST port stay usable."""
    need = 2 * 1000 + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(need, hard), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    clients = [Client(running.http_port, stack) for _ in range(1000)]
    calls = [Client(running.grpc_port, stack) for _ in range(1000)]
    assert is_served(running)
    for client in clients[::20]:
        client.send(SMALL)
        assert client.answer()[0] == 200
    assert len(calls) == 1000


def test_connection_limit_closes_longest_idle(stack: ExitStack) -> None:
    """At the limit of connections, the server accepts a new one, and closes the one that has been idle for longest."""
    options = {"GUNICORN_CMD_ARGS": "--worker-connections 20"}
    narrow = stack.enter_context(gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, **options, **FEW))
    clients = []
    for _ in range(60):
        clients.append(Client(narrow.http_port, stack))
        clients[-1].send(SMALL)
        assert clients[-1].answer()[0] == 200
    assert is_served(narrow)
    assert clients[0].has_ended()
    clients[-1].send(SMALL)
    assert clients[-1].answer()[0] == 200


def test_memory_limit_closes_slowest_clients(stack: ExitStack) -> None:
    """If incomplete requests need more than 8 MiB, the slowest clients get status 408. The other requests complete."""
    service = gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, MAX_REQUEST_BYTES=2**20, **FEW)
    running = stack.enter_context(service)
    sent = request_of("o" * (2**20 - 1000))
    clients: list[Client] = []

    def not_given_up() -> list[Client]:
        return [client for client in clients if not client.hears_within(0)]

    for count in (12, 4):
        clients += [Client(running.http_port, stack) for _ in range(count)]
        for client in clients[-count:]:
            client.send(sent[:-1])
        wait_for(lambda: len(not_given_up()) <= 8)
    assert is_served(running)
    others = not_given_up()
    assert len(others) in range(6, 9)
    for client in clients:
        if client in others:
            client.send(sent[-1:])
            assert client.texts() == ["o" * (2**20 - 1000)]
        else:
            status, _, body = client.answer()
            assert (status, json.loads(body)["error"]) == (408, "out of memory for requests")
    assert "bytes too much memory: closing the slowest clients" in running.log()


FILES = 300
# Starts gunicorn in a process with a low limit on open files.
LIMITED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_more_connections_than_open_files_limit(stack: ExitStack) -> None:
    """More connections than the limit on open files do not delay other clients, on either port."""
    http_port, grpc_port = free_ports(2)
    command = [sys.executable, "-c", LIMITED, sys.executable, "-m", "gunicorn", "tests.service.apps:echoing()"]
    ports = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http_port,
        "GRPC_PORT": grpc_port,
        "WORKERS": 1,
        "SHUTDOWN_DELAY_SECONDS": 0,
    }
    with started(command, ROOT, {**ports, **FEW}) as service:
        clients = [Client(http_port, stack) for _ in range(2 * FILES)]
        assert is_served(service)
        clients[-1].send(SMALL)
        assert clients[-1].answer()[0] == 200
        for _ in range(2 * FILES):
            Client(grpc_port, stack)
        clients[-1].send(SMALL)
        assert clients[-1].answer()[0] == 200
        newcomer = Client(http_port, stack)
        newcomer.send(SMALL)
        assert newcomer.answer()[0] == 200
        assert "descriptor limit" not in service.log()


FLOODS = {
    "many headers": (b"GET /v2 HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
    "a long header": (b"GET /v2 HTTP/1.1\r\na: " + b"b" * 20_000 + b"\r\n\r\n", 431),
    "a head without end": (b"GET /v2 HTTP/1.1\r\n" + b"a: b\r\n" * 100_000, 431),
    "a head of 70 KB": (b"GET /v2 HTTP/1.1\r\n" + (b"a: " + b"b" * 7000 + b"\r\n") * 10 + b"\r\n", 431),
    "a line without end": (b"GET /v2 HTTP/1.1\r\na: " + b"b" * 1_000_000, 431),
    "a long path": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 414),
    "a path without end": (b"GET /" + b"a" * 1_000_000, 414),
    "bare line feeds": (b"GET /v2 HTTP/1.1\n\n", 400),
    "a negative length": (head_of(b"", "Content-Length: -1"), 400),
    "two lengths": (head_of(b"", "Content-Length: 1", "Content-Length: 2"), 400),
    "both framings": (head_of(b"", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
    "an unknown coding": (head_of(b"", "Transfer-Encoding: nonsense"), 501),
    "another coding": (head_of(b"", "Transfer-Encoding: gzip, chunked"), 501),
    "another coding, whole": (head_of(b"", "Transfer-Encoding: gzip, chunked") + chunked(body_of("a")), 501),
    "two codings": (head_of(b"", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked") + chunked(body_of("a")), 501),
    "no chunks": (head_of(b"", "Transfer-Encoding: identity"), 400),
    "an unknown expectation": (head_of(b"x", "Content-Length: 1", "Expect: nonsense"), 417),
    "a malformed chunk": (head_of(b"", "Transfer-Encoding: chunked") + b"xyz\r\n", 400),
    "a chunk's bare line feed": (head_of(b"", "Transfer-Encoding: chunked") + b"1\nx\r\n0\r\n\r\n", 400),
    "a last chunk's bare line feeds": (head_of(b"", "Transfer-Encoding: chunked") + b"0\n\n", 400),
    "a trailer's bare line feed": (head_of(b"", "Transfer-Encoding: chunked") + b"0\r\na: b\n\r\n", 400),
    "a long chunk line": (head_of(b"", "Transfer-Encoding: chunked") + b"1;" + b"a" * 100_000, 400),
    "a chunk over the limit": (head_of(b"", "Transfer-Encoding: chunked") + b"2000000\r\n" + b"x" * (LIMIT + 9), 413),
    "a body over the limit": (head_of(b"", f"Content-Length: {LIMIT + 1}"), 413),
    "a body not waited for": (head_of(b"", f"Content-Length: {LIMIT + 1}", "Expect: 100-continue"), 413),
    "too much of chunks": (head_of(b"", "Transfer-Encoding: chunked") + b"1;a\r\nx\r\n" * 20_000, 400),
}


@pytest.mark.parametrize("name", FLOODS)
def test_rejects_malformed_and_too_large_requests(running: Running, stack: ExitStack, name: str) -> None:
    """The server rejects a malformed or too large request with a JSON error, and closes the connection."""
    sent, status = FLOODS[name]
    client = Client(running.http_port, stack)
    client.send(sent)
    got, headers, body = client.answer()
    assert (got, headers["connection"]) == (status, "close")
    assert list(json.loads(body)) == ["error"]
    assert client.has_ended()


@pytest.mark.parametrize(("asked", "answered"), [("1.0", b"1.0"), ("1.1", b"1.1"), ("1.2", b"1.1"), ("1.9", b"1.1")])
def test_http_version_of_response(running: Running, stack: ExitStack, asked: str, answered: bytes) -> None:
    """The response has the highest HTTP version that both the client and the server support."""
    client = Client(running.http_port, stack)
    client.send(f"GET /v2/health/live HTTP/{asked}\r\nHost: x\r\n\r\n".encode())
    assert client.file.readline() == b"HTTP/%s 200 OK\r\n" % answered


def test_expect_continue(running: Running, stack: ExitStack) -> None:
    """The server sends 100 Continue to a client that expects it and has not sent the body."""
    client, body = Client(running.http_port, stack), body_of("e" * 100)
    for _ in range(2):
        client.send(head_of(body, f"Content-Length: {len(body)}", "Expect: 100-continue"))
        assert client.file.readline() + client.file.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(body)
        assert client.texts() == ["e" * 100]


def test_expect_continue_with_pipelining(running: Running, stack: ExitStack) -> None:
    """The server also sends 100 Continue if the head arrives together with the previous request."""
    client, body = Client(running.http_port, stack), body_of("e" * 100)
    expecting = head_of(body, f"Content-Length: {len(body)}", "Expect: 100-continue")
    client.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" + expecting)
    assert client.answer()[0] == 200
    assert client.file.readline() + client.file.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(body)
    assert client.texts() == ["e" * 100]


@pytest.mark.parametrize("length", [60_000, 70_000, LIMIT])
@pytest.mark.parametrize(("start", "status"), [(b"GET /v2/health/live", 200), (b"POST /v2/nothing", 404)])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_unread_body_keeps_connection_open(
    running: Running, stack: ExitStack, length: int, start: bytes, status: int, is_chunked: bool
) -> None:
    """R20: after a request with a body that no route reads, of any size, the server handles the next request."""
    body = b"y" * length
    line = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % length
    client = Client(running.http_port, stack)
    for _ in range(2):
        client.send(start + b" HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n" + (chunked(body) if is_chunked else body))
    client.send(SMALL)
    assert [client.answer()[0] for _ in range(3)] == [status, status, 200]


@pytest.mark.parametrize("size", [1000, 65_000, 100_000])
def test_large_request_after_chunked_body(running: Running, stack: ExitStack, size: int) -> None:
    """Bytes of the next request that arrive with the last chunk of a body are not added to that body."""
    first = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello")
    client = Client(running.http_port, stack)
    for _ in range(5):
        client.send(SMALL + first[:-9])
        assert client.texts() == ["a" * 100]
        client.send(first[-9:] + request_of("d" * size))
        assert client.answer()[0] == 200
        assert client.texts() == ["d" * size]


@pytest.mark.parametrize("sent", [1, 60, len(SMALL) - 1, len(SMALL)])
def test_request_at_keepalive_timeout(stack: ExitStack, tmp_path: Path, sent: int) -> None:
    """A client that sends within KEEPALIVE_SECONDS gets a response, even if no thread was free to read its request."""
    settings = {"WORKERS": 1, "KEEPALIVE_SECONDS": 1, "FOLDER": tmp_path, **FEW}
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:holding()", **settings))
    client = Client(service.http_port, stack)
    client.send(SMALL)
    assert client.texts() == ["a" * 100]
    idle, begun = Client(service.http_port, stack), time.monotonic()
    holds = [Client(service.http_port, stack) for _ in range(8)]  # as many as there are threads
    for index, each in enumerate(holds):
        each.send(b"GET /hold/%d HTTP/1.1\r\nHost: x\r\n\r\n" % index)
    wait_for(lambda: len(list(tmp_path.iterdir())) == len(holds))
    client.send(SMALL[:sent])
    assert idle.has_ended()  # closed by the server, although all threads are busy
    wait_for(lambda: time.monotonic() > begun + 3)
    (tmp_path / "go").touch()
    client.send(SMALL[sent:])
    assert client.texts() == ["a" * 100]
    assert [each.answer()[0] for each in holds] == [200] * len(holds)


@pytest.mark.parametrize(("path", "status"), [("/v2/nothing", 404), ("/read", 200)])
def test_body_needs_linear_time(stack: ExitStack, path: str, status: int) -> None:
    """The CPU time for a body grows linearly with its size, whether or not a custom route reads it."""
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:spending()", WORKERS=1))
    client = Client(service.http_port, stack)
    body = json.dumps({"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [0]}]}).encode()
    ask = head_of(body) + body
    client.send(ask + head_of(b"", f"Content-Length: {4 * LIMIT}", path=path) + b"y" * 4 * LIMIT + ask)
    before, answer, after = (client.answer() for _ in range(3))
    assert answer[0] == status
    assert milliseconds(after) - milliseconds(before) < 4000


def milliseconds(answer: tuple[int, dict[str, str], bytes]) -> int:
    return json.loads(answer[2])["outputs"][0]["data"][0]


@pytest.mark.parametrize("end", [b"x\r\n", b"0\r\nno colon\r\n\r\n"])
def test_rejects_malformed_unread_body(running: Running, stack: ExitStack, end: bytes) -> None:
    """R20: the server rejects a request with a malformed body, even if no route reads it, and closes the connection."""
    client = Client(running.http_port, stack)
    head = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(head + b"1\r\ny\r\n" + end + SMALL)
    assert client.answer()[0] == 400
    assert client.has_ended()


@pytest.mark.parametrize("extra", [0, 1])
def test_size_limit_of_chunked_body(running: Running, stack: ExitStack, extra: int) -> None:
    """MAX_REQUEST_BYTES limits the data of a chunked body. The size of the chunk headers does not count."""
    body = body_of("f")
    body += b" " * (LIMIT + extra - len(body))
    client = Client(running.http_port, stack)
    client.send(head_of(b"", "Transfer-Encoding: chunked") + chunked(body, 5000))
    assert client.answer()[0] == (413 if extra else 200)


@pytest.mark.parametrize(("size", "count", "expected"), [(5, 90_000, 400), (200, 70_000, 200)])
def test_rejects_many_small_chunks(running: Running, stack: ExitStack, size: int, count: int, expected: int) -> None:
    """R20: the server rejects a body of very many chunks that contain only a few bytes each."""
    body = body_of("f" * (size * count))
    client = Client(running.http_port, stack)
    client.send(head_of(b"", "Transfer-Encoding: chunked") + chunked(body, size))
    assert client.answer()[0] == expected


@pytest.mark.parametrize("first", [SMALL, LARGE, CHUNKED], ids=["small", "large", "chunked"])
def test_half_closed_client_gets_responses(running: Running, stack: ExitStack, first: bytes) -> None:
    """A client that shuts down its sending side gets all its responses."""
    client = Client(running.http_port, stack)
    client.send(first + SMALL)
    client.sock.shutdown(socket.SHUT_WR)
    assert [client.answer()[0] for _ in range(2)] == [200, 200]
    assert client.has_ended()


def test_half_closed_client_gets_response_with_batching(stack: ExitStack) -> None:
    """With batching, a client that shuts down its sending side gets the response to a request that did not wait."""
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, MAX_BATCH_SIZE=8))
    client = Client(service.http_port, stack)
    client.send(SMALL)
    client.sock.shutdown(socket.SHUT_WR)
    assert client.answer()[0] == 200


@pytest.mark.parametrize(
    ("version", "lines"),
    [
        ("1.0", []),
        ("1.1", ["Connection: close"]),
        ("1.1", ["Connection: TE, Close"]),
        ("1.1", ["Connection: TE,\tclose"]),
        ("1.1", ["Connection: TE", "Connection: close"]),
    ],
)
def test_closes_connection_on_request(running: Running, stack: ExitStack, version: str, lines: list[str]) -> None:
    """The server closes the connection after a request of HTTP/1.0 or with `Connection: close`."""
    client, body = Client(running.http_port, stack), body_of("g" * 10**6)
    client.send(head_of(body, f"Content-Length: {len(body)}", *lines, version=version) + body)
    assert client.texts() == ["g" * 10**6]
    assert client.has_ended()


messages = st.one_of(
    st.integers(0, 300).map(lambda size: (request_of("h" * size), ["h" * size])),
    st.integers(60_000, 90_000).map(lambda size: (request_of("i" * size), ["i" * size])),
    st.tuples(st.integers(1, 3000), st.integers(1, 500), st.sampled_from([b"", b"A: b\r\n"])).map(
        lambda each: (
            head_of(b"", "Transfer-Encoding: chunked") + chunked(body_of("j" * each[0]), *each[1:]),
            ["j" * each[0]],
        )
    ),
    st.integers(0, 3000).map(
        lambda size: (
            head_of(
                packed := gzip.compress(body_of("k" * size)), "Content-Encoding: gzip", f"content-length:{len(packed)}"
            )
            + packed,
            ["k" * size],
        )
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(messages, min_size=1, max_size=4), places=st.sets(st.integers(0, 2**20), max_size=8))
def test_requests_in_pieces(running: Running, requests: list[tuple[bytes, list[str]]], places: set[int]) -> None:
    """Requests that are split anywhere get their own responses, in order."""
    sent = b"".join(each for each, _ in requests)
    cuts = sorted({1 + place % (len(sent) - 1) for place in places})
    with ExitStack() as stack:
        client = Client(running.http_port, stack)
        for start, end in pairwise([0, *cuts, len(sent)]):
            client.send(sent[start:end])
            time.sleep(0.001)  # so that TCP can send the piece as a separate segment
        for _, texts in requests:
            status, _, body = client.answer()
            assert (status, texts_of(body)) == (200, texts)


@pytest.mark.parametrize("first", [SMALL[:1], SMALL[:-50], LARGE[:-9], CHUNKED[:-5]], ids=len)
def test_incomplete_request_times_out(hasty: Running, stack: ExitStack, first: bytes) -> None:
    """The server responds with 408 to a request that is incomplete after the time limit, and closes the connection."""
    client = Client(hasty.http_port, stack)
    client.send(first)
    status, headers, body = client.answer()
    assert (status, headers["connection"]) == (408, "close")
    assert json.loads(body) == {"error": "the request did not come in time"}
    assert client.has_ended()


@pytest.mark.parametrize("read", [[], ["d" * (10 * 2**20)]], ids=["first", "after a large response"])
def test_single_bytes_do_not_extend_time_limit(hasty: Running, stack: ExitStack, read: list[str]) -> None:
    """Single bytes do not extend the time limit of a request, even after the client has read a large response."""
    client = Client(hasty.http_port, stack, room=4096)
    for text in read:
        client.send(request_of(text))
        assert client.texts() == [text]
    for index in range(len(SMALL)):
        client.send(SMALL[index : index + 1])
        if client.hears_within(0.1):
            break
    assert index < len(SMALL) - 1
    assert client.answer()[0] == 408


def test_unread_response_times_out(hasty: Running, stack: ExitStack) -> None:
    """The server closes the connection of a client that does not read its response in time."""
    clients = [Client(hasty.http_port, stack, room=4096) for _ in range(4)]
    for client in clients:
        client.send(request_of("d" * (10 * 2**20)))
    for client in clients:
        assert client.hears_within(PATIENCE)
    wait_for(lambda: not connections_of(hasty.http_port))
    assert is_served(hasty)


def connections_of(port: int) -> int:
    """Return the number of connections of the port that a process has not closed."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    states = ("01", "08")  # established, and closed by the client
    return sum(int(row[1].split(":")[1], 16) == port and row[3] in states and row[9] != "0" for row in rows)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, ssl.SSLContext]]:
    with over_tls(tmp_path_factory.mktemp("tls")) as both:
        yield both


@contextmanager
def over_tls(folder: Path, **settings: Any) -> Iterator[tuple[Running, ssl.SSLContext]]:
    """Run the echo with TLS on the REST port. Yield the service, and an SSL context for its clients."""
    authority = trustme.CA()
    issued, context = authority.issue_cert("127.0.0.1"), ssl.create_default_context()
    authority.configure_trust(context)
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for pem in issued.cert_chain_pems:
        pem.write_to_path(folder / "cert.pem", append=True)
    options = f"--certfile {folder}/cert.pem --keyfile {folder}/key.pem"

    def is_ready(service: Running) -> bool:
        return "is ready" in service.log()

    with gunicorn(
        ROOT,
        "tests.service.apps:echoing()",
        is_ready=is_ready,
        **{"WORKERS": 1, "GUNICORN_CMD_ARGS": options, **FEW, **settings},
    ) as service:
        yield service, context


# The part of the handshake that a client sends, or of a request after the handshake.
STAGES = ["nothing", "half a handshake", *HALVES]


@pytest.mark.parametrize("name", STAGES)
def test_slow_tls_clients_delay_no_others(secure: tuple[Running, ssl.SSLContext], stack: ExitStack, name: str) -> None:
    """TLS clients that pause in the handshake or in a request do not delay others, and get their responses later."""
    service, context = secure
    clients = []
    for _ in range(SLOW // 2):
        client = Client(service.http_port, stack)
        clients.append(client)
        if name == "half a handshake":
            client.send(b"\x16\x03\x01\x02\x00\x01\x00")
        elif name in HALVES:
            client.secure(context, stack)
            client.send(HALVES[name][0])
    other = Client(service.http_port, stack)
    other.secure(context, stack)
    for text in ("l" * 100, "m" * 10**7):
        other.send(request_of(text))
        assert other.texts() == [text]
    for client in clients if name in HALVES else ():
        client.send(HALVES[name][1])
        for _ in range(2 if name == "a request and a half" else 1):
            assert set(client.texts()[0]) <= set("abc")


def test_idle_tls_connection_ends_with_close_notify(tmp_path: Path, stack: ExitStack) -> None:
    """The server sends close_notify before it closes an idle TLS connection, as strict clients require."""
    service, context = stack.enter_context(over_tls(tmp_path, KEEPALIVE_SECONDS=1))
    client = Client(service.http_port, stack)
    client.file.close()
    secured = context.wrap_socket(client.sock, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
    client.use(stack.enter_context(secured), stack)
    client.send(SMALL)
    assert client.answer()[0] == 200
    assert client.has_ended()


def test_slow_tls_readers_get_complete_responses(secure: tuple[Running, ssl.SSLContext], stack: ExitStack) -> None:
    """Over TLS, a client that reads a large response late gets all of it."""
    service, context = secure
    clients = [Client(service.http_port, stack, room=4096) for _ in range(SLOW // 2)]
    for client in clients:
        client.secure(context, stack)
        client.send(request_of("n" * 10**7))
    for client in clients:
        assert client.texts() == ["n" * 10**7]


def http2(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, 4.1)."""
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a literal header field in HPACK (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = http2(4, 0, 0, b"")


def calls(path: bytes, count: int) -> bytes:
    """Return the frames that start `count` calls on a connection, without their messages."""
    names = [(b":path", path), (b":authority", b"x"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    head = b"\x83\x86" + b"".join(literal(*each) for each in names)  # POST, http
    return b"".join(http2(1, 4, 2 * index + 1, head) for index in range(count))


REFLECTION = b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
INFER, WATCH = b"/inference.GRPCInferenceService/ModelInfer", b"/grpc.health.v1.Health/Watch"
# An initial window of 0 bytes (RFC 9113, 6.5.2), so that the server cannot send a message.
NO_WINDOW = http2(4, 0, 0, struct.pack("!HI", 4, 0)) + http2(4, 1, 0, b"")
# The bytes that each gRPC client sends before it stops, and the number of clients.
SILENT = {
    "nothing": (b"", 40),
    "half a preface": (PREFACE[:9], 40),
    "a preface": (PREFACE, 40),
    "settings": (PREFACE + SETTINGS, 40),
    "half a frame": (PREFACE + SETTINGS + calls(INFER, 1)[:-9], 40),
    "calls without a message": (PREFACE + SETTINGS + calls(INFER, 20), 4),
    "many calls without a message": (PREFACE + SETTINGS + calls(INFER, 800), 3),
    "watches without a message": (PREFACE + SETTINGS + calls(WATCH, 20), 4),
    "reflections": (
        PREFACE + SETTINGS + calls(b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", 20),
        4,
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_silent_grpc_clients_delay_no_others(running: Running, stack: ExitStack, name: str) -> None:
    """gRPC connections and calls without further data do not delay the calls and health checks of other clients."""
    sent, count = SILENT[name]
    for _ in range(count):
        Client(running.grpc_port, stack).send(sent)
    assert is_served(running)
    for _ in range(4):
        with running.own_channel() as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status == SERVING
            watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE / 2)
            assert next(watch).status == SERVING
            watch.cancel()


def message(body: bytes, call: int = 1) -> bytes:
    """Return the frames of the only message of a call. The last one ends the client's side of the stream."""
    body = struct.pack("!BI", 0, len(body)) + body
    pieces = [body[place : place + 2**14] for place in range(0, len(body), 2**14)]
    return b"".join(http2(0, 0, call, each) for each in pieces) + http2(0, 1, call, b"")


def asking(size: int) -> bytes:
    """Return the message of a request to echo `size` bytes. The initial window has space for 60,000."""
    request = ModelInferRequest(model_name="test")
    request.inputs.add(name="x", datatype="BYTES", shape=[1]).contents.bytes_contents.append(bytes(size))
    return message(request.SerializeToString())


def ask_without_reading(port: int, stack: ExitStack, size: int = 60_000) -> Client:
    """Return a client that has requested an echo, and does not accept the response."""
    client = Client(port, stack)
    client.send(PREFACE + NO_WINDOW + calls(INFER, 1) + asking(size))
    return client


def test_shutdown_waits_for_slow_grpc_reader(stack: ExitStack) -> None:
    """During shutdown, a client has as long to read its response as running requests have to complete."""
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, SHUTDOWN_DELAY_SECONDS=0))
    client = ask_without_reading(service.grpc_port, stack)
    wait_for(lambda: scrape(service)("inference_requests_total", operation="infer", protocol="grpc", code="OK") == 1)
    service.process.terminate()
    ended = False
    for _ in range(70):  # a thousand bytes each time
        client.send(http2(8, 0, 0, struct.pack("!I", 1000)) + http2(8, 0, 1, struct.pack("!I", 1000)))
        ended = client.hears_within(PATIENCE) and b"grpc-status\x010" in client.sock.recv(2**16)
        if ended:
            break
        time.sleep(0.05)  # a slow client
    assert ended
    assert service.process.wait(PATIENCE) == 0


def test_unread_watch_delays_no_others(hasty: Running, stack: ExitStack) -> None:
    """G7: a client that does not read the messages of Watch does not delay other clients."""
    Client(hasty.grpc_port, stack).send(
        PREFACE + NO_WINDOW + calls(WATCH, 100) + b"".join(message(b"", 2 * index + 1) for index in range(100))
    )
    channel = stack.enter_context(hasty.own_channel())
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE / 2)
    assert next(watch).status == SERVING


def test_very_many_concurrent_grpc_calls(running: Running, stack: ExitStack) -> None:
    """Calls beyond the number of messages that gRPC receives at the same time also get responses."""
    path, calls = INFER.decode().replace("ModelInfer", "ServerLive"), []
    for _ in range(3):  # each with fewer calls than the limit of a connection
        channel = stack.enter_context(running.own_channel())
        calls += [channel.unary_unary(path).future(b"", timeout=PATIENCE) for _ in range(600)]
    assert {call.result() for call in calls} == {b"\x08\x01"}


class Reflection:
    """A stream that stays open."""

    def __init__(self, channel: grpc.Channel):
        self._asks: SimpleQueue[reflection_pb2.ServerReflectionRequest] = SimpleQueue()
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        self._answers = stub.ServerReflectionInfo(iter(self._asks.get, None), timeout=PATIENCE)

    def lists(self) -> bool:
        self._asks.put(reflection_pb2.ServerReflectionRequest(list_services=""))
        return bool(next(self._answers).list_services_response.service)

    def close(self) -> None:
        self._answers.cancel()
        self._asks.put(None)


def test_cancels_streams_beyond_limit(running: Running, stack: ExitStack) -> None:
    """A worker cancels streams beyond MAX_STREAMS, because each needs a thread. The others continue."""
    channel = stack.enter_context(running.own_channel())
    first = stack.enter_context(closing(Reflection(channel)))
    assert first.lists()
    others = [stack.enter_context(closing(Reflection(channel))) for _ in range(MAX_STREAMS)]
    with pytest.raises(grpc.RpcError) as caught:
        [each.lists() for each in others]
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    assert first.lists()
    assert is_served(running)


@pytest.mark.parametrize("size", [1, 15_000, 20_000, 1_000_000])
def test_size_limit_of_metadata(running: Running, size: int) -> None:
    """Metadata of more than 16 KiB results in RESOURCE_EXHAUSTED, and the connection stays open."""
    with running.own_channel() as channel:
        call = channel.unary_unary(INFER.decode().replace("ModelInfer", "ServerLive"))
        for _ in range(4):
            if size < 2**14:
                assert call(b"", metadata=[("x", "y" * size)], timeout=PATIENCE)
                continue
            with pytest.raises(grpc.RpcError) as caught:
                call(b"", metadata=[("x", "y" * size)], timeout=PATIENCE)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert call(b"", timeout=PATIENCE)
