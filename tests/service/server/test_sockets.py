"""Listening sockets at the end of the service: no connection that the kernel has accepted is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from app.server import sockets

ADDRESSES = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@pytest.fixture(params=["privileged", "unprivileged"])
def privileges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with the kernel's filter of SYNs, and without it. An invalid filter is not attached."""
    if request.param == "unprivileged":
        monkeypatch.setattr(sockets, "DROP_SYN", b"")


@pytest.fixture(params=["IPv4", "IPv6", "both"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    if request.param != "IPv4" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    if request.param == "IPv4":
        server = socket.create_server(("127.0.0.1", 0))
    else:
        is_dual = request.param == "both"
        address = ("::" if is_dual else "::1", 0)
        server = socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=is_dual)
    with server:
        yield server


def addresses_of(listener: socket.socket) -> list[tuple[str, int]]:
    host, port = listener.getsockname()[:2]
    hosts = ["127.0.0.1", "::1"] if host == "::" else [host]
    return [(name, port) for name in hosts]


def test_new_handshakes_are_dropped(privileges: None, listener: socket.socket) -> None:
    """Connections in the queue are served. A later client is refused, and loses no request."""
    addresses = addresses_of(listener)
    early = [socket.create_connection(address) for address in addresses]
    sockets.drop_new_handshakes(listener)
    failures: list[OSError] = []

    def connect(address: tuple[str, int]) -> None:
        try:
            socket.create_connection(address, timeout=180).close()
        except OSError as error:
            failures.append(error)

    late = [threading.Thread(target=connect, args=[address]) for address in addresses]
    for thread in late:
        thread.start()
    for client in early:
        server, _ = listener.accept()
        sockets.accept_packets(server)
        client.sendall(b"request")
        server.settimeout(60)
        assert server.recv(7) == b"request"
        client.close()
        server.close()

    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()
    for thread in late:
        thread.join()
    assert {type(error) for error in failures} == {ConnectionRefusedError}
    assert len(failures) == len(addresses)
