"""The chaos tests: a short run, the classification of losses and rejections by clients, and the results on the page."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dev.chaos.clients import CLIENTS, REJECTED, Plan
from dev.chaos.load import Tally
from dev.chaos.report import PAGE, RESULTS, Outcome, quoted, row, table
from tests.kit.environments import ROOT, run
from tests.kit.processes import free_ports

PATIENCE = 0.3
OTHER = json.dumps({"outputs": [{"data": [-1]}]})


@pytest.mark.slow
def test_short_run_passes() -> None:
    """A short run of the scenarios `rolling` and `stop_one_instance` passes."""
    output = run(
        sys.executable,
        "-m",
        "dev.chaos",
        "rolling",
        "stop_one_instance",
        "--seconds",
        "1",
        PYTHONPATH=str(ROOT),
    )
    assert output.count("\n  held\n") == 2
    assert "NOT" not in output


@contextmanager
def http_server(octets: bytes | None) -> Iterator[str]:
    """Yield the address of a server that sends these bytes on one connection and closes it. None sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(2**16)
                connection.sendall(octets or b"")
                while octets is None and connection.recv(2**16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def send_request(protocol: str, address: str) -> str:
    async def once() -> str:
        client = CLIENTS[protocol](Plan(protocol, [address], patience=PATIENCE))
        try:
            return await client.send_request()
        finally:
            await client.close()

    return asyncio.run(once())


def response(status: str, body: str = "", header: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{header}\r\n{body}".encode()


@pytest.mark.parametrize(
    ("octets", "outcome"),
    [
        (response("503 Full", header="Retry-After: 1\r\n"), REJECTED),
        (response("503 Full"), "REST, 503 b''"),
        (response("200 OK", OTHER), "REST, a wrong response"),
        (b"", "REST, closed without a response"),
        (response("200 OK", OTHER)[:-5], "REST, closed within a response"),
        (None, "REST, no response in time"),
    ],
)
def test_rest_client_counts_rejections_and_losses(octets: bytes | None, outcome: str) -> None:
    """Only 503 with Retry-After counts as a rejection. Every other response except the correct one counts as a loss."""
    with http_server(octets) as address:
        assert send_request("rest", address) == outcome


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_refused_connection_is_a_rejection(protocol: str) -> None:
    """A refused connection counts as a rejection."""
    assert send_request(protocol, f"127.0.0.1:{free_ports(1)[0]}") == REJECTED


def test_scenario_with_a_loss_fails() -> None:
    """A scenario fails if its clients lose a request or receive no response at all."""
    good = Tally(succeeded=3)
    for tally, holds in (
        (good, True),
        (replace(good, lost={"reset": 1}), False),
        (Tally(rejected=3), False),
    ):
        outcome = Outcome({"rest": tally})
        outcome.check_losses()
        assert (not outcome.faults) == holds
        assert ("| yes |" in table([row("x", "x", 1, outcome)])) == holds


def test_page_contains_results() -> None:
    """The tables in dev/chaos/README.md and results.md match results.json."""
    expected = table(json.loads((RESULTS / "results.json").read_text())["rows"])
    assert quoted(PAGE.read_text()) == expected
    assert expected in (RESULTS / "results.md").read_text()
