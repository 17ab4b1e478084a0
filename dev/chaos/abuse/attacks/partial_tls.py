"""Attacks on the TLS port by clients without an API key.

Each TLS connection has buffers of OpenSSL, so nothing here limits the memory of these attacks. The
figures show the memory of a number of connections, which only a proxy can limit.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack

from dev.chaos.abuse.attacks.base import Target, over_tls
from dev.chaos.abuse.attacks.rest_without_key import CONNECTIONS, HEAD_BYTES, INFER_LINE
from dev.chaos.abuse.swarm import Peer, Swarm

CONNECT_SECONDS = 10


def trusting_context() -> ssl.SSLContext:
    """Return a context that accepts each certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    output = ssl.MemoryBIO()
    connection = trusting_context().wrap_bio(ssl.MemoryBIO(), output)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return output.read()
    raise AssertionError("a handshake ended without the server")


@over_tls("TLS: partial handshakes")
def partial_handshakes(target: Target) -> None:
    """Send the first message of a TLS handshake, and ignore the response of the service."""
    hello = client_hello()
    with Swarm(target.service.http_port, CONNECTIONS, lambda: Peer(hello)) as swarm:
        target.run(swarm)


@over_tls("TLS: incomplete heads of 32 KiB")
def heads_over_tls(target: Target) -> None:
    """Complete the TLS handshake, and send a head of almost 32 KiB without its last line."""
    start = INFER_LINE + b"\r\nHost: x\r\n"
    line = b"X: " + b"x" * 1000 + b"\r\n"
    head = (start + line * (HEAD_BYTES // len(line) + 1))[:HEAD_BYTES]
    context = trusting_context()
    count = 0
    with ExitStack() as stack:
        while count < CONNECTIONS and not target.must_end:
            address = ("127.0.0.1", target.service.http_port)
            sock = stack.enter_context(socket.create_connection(address, CONNECT_SECONDS))
            connection = stack.enter_context(context.wrap_socket(sock))
            connection.sendall(head)
            count += 1
    target.figures["connections"] = f"{count:,}"
    target.figures["sent, KiB"] = f"{count * len(head) / 1024:,.0f}"
