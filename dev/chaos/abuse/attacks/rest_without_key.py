"""Attacks over REST by clients without an API key."""

from __future__ import annotations

import gzip
from itertools import cycle

from dev.chaos.abuse.attacks.base import Target, without_key
from dev.chaos.abuse.swarm import Flooder, Peer, Repeater, Swarm

CONNECTIONS = 3000
INFER_LINE = b"POST /v2/models/test/infer HTTP/1.1"
# Below MAX_REQUEST_BYTES, which is 64 MiB.
LARGE_BODY_BYTES = 60 * 2**20
# One below and one above the size from which on malloc returns memory to the system at once.
REUSED_BODY_BYTES = [2**20, 31 * 2**20]
BODY_START = b'{"inputs": ['
COMPLETE_BODY_BYTES = 2**20
BOMB_BYTES = 2**25
# The service accepts 32 KiB for a head.
HEAD_BYTES = 32 * 1024 - 64
FIELD_BYTES = 8000
WRONG_KEY_FIELD = b"Authorization: Bearer not-the-key-of-a-client"
SMALL_BUFFER = 4096
# Number of times that all connections are closed in an attack.
ROUNDS = 4
REQUESTS_PER_PACKET = 100


def head(*fields: bytes, line: bytes = INFER_LINE) -> bytes:
    return b"\r\n".join([line, b"Host: x", *fields, b"", b""])


def hold(target: Target, request: bytes) -> None:
    """Send the request on all connections, and keep them open without reading."""
    with Swarm(target.service.http_port, CONNECTIONS, lambda: Peer(request)) as swarm:
        target.run(swarm)


def repeat(target: Target, request: bytes) -> None:
    """Send the request on all connections again and again, also after the service closes them."""
    with Swarm(
        target.service.http_port, CONNECTIONS, lambda: Repeater(request), reconnects=True
    ) as swarm:
        target.run(swarm)


@without_key("REST: announced bodies")
def announced_bodies(target: Target) -> None:
    """Announce bodies of 60 MiB with Content-Length, and send only their first bytes."""
    hold(target, head(b"Content-Length: %d" % LARGE_BODY_BYTES) + BODY_START)


@without_key("REST: chunked bodies without an end")
def chunked_bodies(target: Target) -> None:
    """Start a large chunk on each connection, and send half a megabyte of it."""
    chunk = b"%x\r\n" % LARGE_BODY_BYTES + bytes(2**19)
    hold(target, head(b"Transfer-Encoding: chunked") + chunk)


@without_key("REST: bodies that wait for 100 Continue")
def expected_bodies(target: Target) -> None:
    """Announce bodies with Expect: 100-continue, and send a megabyte if the service asks for it."""
    request = head(b"Content-Length: %d" % LARGE_BODY_BYTES, b"Expect: 100-continue")
    body = bytes(COMPLETE_BODY_BYTES)

    class Obedient(Peer):
        def handle_data(self, data: bytes) -> None:
            if b"100 Continue" in data:
                self.output = memoryview(body)

    with Swarm(target.service.http_port, CONNECTIONS, lambda: Obedient(request)) as swarm:
        target.run(swarm)


@without_key("REST: announced bodies in memory that was used before")
def reused_memory(target: Target) -> None:
    """Announce bodies, close all connections but the last, and announce again in freed memory."""
    requests = []
    for size in REUSED_BODY_BYTES:
        requests.append(head(b"Content-Length: %d" % size) + BODY_START)
    next_request = cycle(requests).__next__

    with Swarm(target.service.http_port, CONNECTIONS, lambda: Peer(next_request())) as swarm:
        for _ in range(ROUNDS):
            swarm.run(target.end, lambda: swarm.has_sent_everything)
            swarm.close_all_but(1)
            swarm.open_again(CONNECTIONS)
        target.run(swarm)


@without_key("REST: incomplete heads of 32 KiB")
def incomplete_heads(target: Target) -> None:
    """Send heads of almost 32 KiB without their last line."""
    field = b"X: " + b"x" * FIELD_BYTES + b"\r\n"
    start = INFER_LINE + b"\r\nHost: x\r\n"
    fields = field * (HEAD_BYTES // len(field) + 1)
    hold(target, (start + fields)[:HEAD_BYTES])


@without_key("REST: complete bodies with a wrong key")
def complete_bodies(target: Target) -> None:
    """Send complete bodies of a megabyte with a wrong key, again and again."""
    request = head(WRONG_KEY_FIELD, b"Content-Length: %d" % COMPLETE_BODY_BYTES)
    repeat(target, request + bytes(COMPLETE_BODY_BYTES))


@without_key("REST: gzip bodies without a key")
def gzip_bodies(target: Target) -> None:
    """Send bodies of 32 KiB that decompress to 32 MiB, again and again."""
    body = gzip.compress(bytes(BOMB_BYTES))
    request = head(b"Content-Encoding: gzip", b"Content-Length: %d" % len(body))
    repeat(target, request + body)


@without_key("REST: flood of health checks")
def health_flood(target: Target) -> None:
    """Ask for the health on all connections, as fast as the service responds."""
    repeat(target, head(line=b"GET /v2/health/ready HTTP/1.1"))


@without_key("REST: flood of metrics")
def metrics_flood(target: Target) -> None:
    """Ask for the metrics on all connections, as fast as the service responds."""
    repeat(target, head(line=b"GET /metrics HTTP/1.1"))


@without_key("REST: unread metrics")
def unread_metrics(target: Target) -> None:
    """Send requests for metrics one after the other, and read no response."""
    leave_unread(target, head(line=b"GET /metrics HTTP/1.1"))


@without_key("REST: unread health checks")
def unread_health(target: Target) -> None:
    """Send health checks one after the other, and read no response."""
    leave_unread(target, head(line=b"GET /v2/health/live HTTP/1.1"))


def leave_unread(target: Target, request: bytes) -> None:
    requests = request * REQUESTS_PER_PACKET
    with Swarm(
        target.service.http_port,
        CONNECTIONS,
        lambda: Flooder(requests),
        reconnects=True,
        receive_buffer=SMALL_BUFFER,
    ) as swarm:
        target.run(swarm)
