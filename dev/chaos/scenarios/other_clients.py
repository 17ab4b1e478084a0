"""Slow and idle clients, and invalid requests, which must not affect other clients."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dev.chaos.load import load
from dev.chaos.report import Outcome
from dev.chaos.scenarios.base import Options, scenario
from dev.chaos.service import serving, workers
from tests.kit.processes import Running

HEAD = b"POST /v2/models/test/infer HTTP/1.1\r\nHost: x\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS_FRAME = b"\0\0\0\4\0\0\0\0\0"
# Bytes that slow clients send to each port, one per second: the head and the body, or a frame for gRPC.
SLOW = {
    "http": [(b"", HEAD * 9), (HEAD + b"Content-Length: 999\r\n\r\n", b"x" * 999)],
    "grpc": [
        (b"", PREFACE * 9),
        (PREFACE + SETTINGS_FRAME, b"\0\x03\xe7\0\0\0\0\0\1" + bytes(999)),
    ],
}
SLOW_EACH, HALF_CLOSED_EACH, IDLE_EACH = 100, 50, 500
MEGABYTE = 10**6
# Timeout of normal clients in these scenarios.
PATIENCE = 5
# Timeout of clients that send invalid requests.
ANSWER_SECONDS = 0.5


class OtherClients:
    """Slow, idle and half-closed connections to both ports."""

    def __init__(self, service: Running):
        self.ports = {"http": service.http_port, "grpc": service.grpc_port}
        self.idle_sockets: list[socket.socket] = []
        self.slow_sockets: list[tuple[socket.socket, Iterator[int]]] = []
        self.left = self.ended = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.send_slowly)

    def connect_all(self) -> None:
        for name, port in self.ports.items():
            for begin, rest in SLOW[name]:
                self.slow_sockets += [(connect(port, begin), iter(rest)) for _ in range(SLOW_EACH)]
            for begin, _ in SLOW[name]:
                halves = [connect(port, begin) for _ in range(HALF_CLOSED_EACH // 2)]
                for each in halves:
                    each.shutdown(socket.SHUT_WR)
                self.idle_sockets += halves
            self.idle_sockets += [connect(port) for _ in range(IDLE_EACH)]
        self.thread.start()

    def send_slowly(self) -> None:
        while not self.stopping.wait(1):
            for sock, rest in self.slow_sockets:
                with suppress(OSError, StopIteration):
                    sock.send(bytes([next(rest)]))

    def open(self) -> int:
        """Return the number of connections that the service has not closed."""
        return sum(
            not has_ended(each)
            for each in [*self.idle_sockets, *(sock for sock, _ in self.slow_sockets)]
        )

    def close(self) -> None:
        self.stopping.set()
        self.thread.join()
        for each in [*self.idle_sockets, *(sock for sock, _ in self.slow_sockets)]:
            each.close()


def connect(port: int, begin: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    sock.sendall(begin)
    return sock


def has_ended(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        while sock.recv(2**16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def other_clients(service: Running) -> Iterator[OtherClients]:
    made = OtherClients(service)
    made.connect_all()
    try:
        yield made
    finally:
        made.close()


@scenario("400 slow, 1,000 idle and 100 half-closed connections")
def slow_clients(options: Options) -> Outcome:
    """Run two normal clients per protocol, which use a new connection for each request."""
    outcome = Outcome()
    with serving(SHUTDOWN_TIMEOUT_SECONDS=1) as service:
        before = workers(service)
        with other_clients(service) as others:
            time.sleep(options.seconds / 5)
            with load([service], clients=2, fresh=True, patience=PATIENCE) as outcome.tallies:
                time.sleep(options.seconds)
            outcome.figures = {"connections still open at the end": others.open()}
        outcome.check(workers(service) == before, "a worker was lost")
    pause = max(tally.pause for tally in outcome.tallies.values())
    outcome.figures["longest time without a response, s"] = f"{pause:.2f}"
    outcome.check_losses()
    return outcome


@scenario("Garbage, truncated bodies, floods of headers")
def bad_clients(options: Options) -> Outcome:
    """Run two normal clients per protocol alongside invalid requests, and check that no worker is replaced."""
    outcome, statuses = Outcome(), Counter[str]()
    with serving() as service:
        before = workers(service)
        with load([service], clients=2) as outcome.tallies:
            end = time.monotonic() + options.seconds
            while not statuses or time.monotonic() < end:
                for port in (service.http_port, service.grpc_port):
                    for octets in bad_requests():
                        statuses[send(port, octets)] += 1
        outcome.check(workers(service) == before, "a worker was lost")
        outcome.check(service.ready(), "the service is not ready")
        outcome.check("Traceback" not in service.log(), "there is a traceback in the log")
    outcome.figures = {
        "bad requests": f"{sum(statuses.values()):,}",
        **{f"of these: {result}": n for result, n in statuses.items()},
    }
    outcome.check_losses()
    return outcome


def bad_requests() -> list[bytes]:
    """Return invalid and truncated requests."""
    length = b"Content-Length: %d\r\n"
    flood = b"".join(b"X-%d: x\r\n" % index for index in range(10_000))
    return [
        random.randbytes(1000),
        b"\r\n" * 1000,
        b"\0" * 10_000,
        b"GET / HTTP/9.9\r\n\r\n",
        HEAD + length % 1000 + b'\r\n{"inputs"',
        HEAD + length % 5 + b'\r\n{"inputs": []} and more that nobody announced',
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 9" * 20 + b"\r\n\r\n",
        HEAD + length % 2 + length % 3 + b"\r\n{}{",
        HEAD + length % 10**15 + b"\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nx",
        HEAD + b"Content-Encoding: gzip\r\n" + length % 20 + b"\r\n\x1f\x8b" + random.randbytes(18),
        HEAD + b"Content-Encoding: deflate\r\n" + length % 20 + b"\r\n" + random.randbytes(20),
        HEAD + flood + b"\r\n",
        HEAD + b"X: " + b"x" * MEGABYTE + b"\r\n\r\n",
        b"GET /" + b"x" * MEGABYTE + b" HTTP/1.1\r\n\r\n",
        PREFACE,
        PREFACE + SETTINGS_FRAME + random.randbytes(1000),
        PREFACE + SETTINGS_FRAME + b"\xff\xff\xff\1\4\0\0\0\1" + bytes(10_000),
        PREFACE + SETTINGS_FRAME + b"\0\0\1\3\0\0\0\0\1\0" * 1000,
    ]


def send(port: int, octets: bytes) -> str:
    """Return the kind of response: the class of an HTTP status, gRPC frames, a closed connection, or none."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as sock:
        try:
            sock.sendall(octets)
            sock.shutdown(socket.SHUT_WR)
            response = sock.recv(100)
        except TimeoutError:
            return "silence"
        except OSError:
            return "reset"
    if not response:
        return "closed"
    return (
        f"{response[9:10].decode()}xx"
        if response.startswith(b"HTTP/1")
        else "a response in HTTP/2 frames"
    )
