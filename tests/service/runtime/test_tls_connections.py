"""Slow and idle clients that use TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.kit.processes import Running, gunicorn
from tests.service.runtime.raw_client import FEW, HALVES, ROOT, SLOW, SMALL, Client, request_of


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
def test_slow_tls_clients_delay_no_others(
    secure: tuple[Running, ssl.SSLContext], stack: ExitStack, name: str
) -> None:
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
    secured = context.wrap_socket(
        client.sock, server_hostname="127.0.0.1", suppress_ragged_eofs=False
    )
    client.use(stack.enter_context(secured), stack)
    client.send(SMALL)
    assert client.read_response()[0] == 200
    assert client.has_ended()


def test_slow_tls_readers_get_complete_responses(
    secure: tuple[Running, ssl.SSLContext], stack: ExitStack
) -> None:
    """Over TLS, a client that reads a large response late gets all of it."""
    service, context = secure
    clients = [Client(service.http_port, stack, room=4096) for _ in range(SLOW // 2)]
    for client in clients:
        client.secure(context, stack)
        client.send(request_of("n" * 10**7))
    for client in clients:
        assert client.texts() == ["n" * 10**7]
