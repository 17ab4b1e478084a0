"""Workers, their threads, connections and memory."""

from __future__ import annotations

import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest

from oip_conformance.wires import Grpc
from tests.kit.processes import Running, gunicorn, python_path, wait_for
from tests.service.runtime.commands import GOOD, ROOT, post, post_on_new_connection, tensor


def grpc_workers(service: Running) -> set[int]:
    """Return the PIDs of the workers that have served gRPC calls, from the log."""
    lines = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    return {line["pid"] for line in lines if line.get("protocol") == "grpc"}


def test_maximum_connection_age_spreads_calls(tmp_path: Path) -> None:
    """After GRPC_MAX_CONNECTION_AGE_SECONDS, a channel reconnects and can reach another worker. No call fails."""
    settings = {"WORKERS": 2, "LOG_FORMAT": "json", "GRPC_MAX_CONNECTION_AGE_SECONDS": 0.2}
    quick, long = tmp_path / "quick", tmp_path / "long"
    for folder in (quick, long):
        folder.mkdir()
    (quick / "go").touch()

    def call(folder: Path) -> str:
        return client.infer(
            [("folder", "BYTES", [1], [str(folder)]), ("name", "BYTES", [1], ["x"])]
        ).kind

    with (
        gunicorn(ROOT, "tests.service.apps:waiting()", **settings) as service,
        grpc.insecure_channel(service.grpc_address) as channel,
        ThreadPoolExecutor() as pool,
    ):
        client = Grpc(channel, timeout=180)
        waiting = pool.submit(call, long)
        wait_for((long / "x.begun").exists)
        kinds = set()

        def have_both_responded() -> bool:
            kinds.update(pool.map(call, [quick] * 8))
            return len(grpc_workers(service)) == 2

        wait_for(have_both_responded)
        (long / "go").touch()
        assert kinds | {waiting.result()} == {"ok"}


def test_grpc_channel_keeps_its_worker() -> None:
    """By default, a channel keeps one connection to one worker."""
    with gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=2, LOG_FORMAT="json") as service:
        with grpc.insecure_channel(service.grpc_address) as channel:
            client = Grpc(channel)
            for _ in range(100):
                assert client.infer([("x", "BYTES", [1], ["a"])]).is_success
        wait_for(lambda: service.log().count('"protocol":"grpc"') == 100)
        assert len(grpc_workers(service)) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_unclosed_client_connections_delay_no_requests(threads: int) -> None:
    """A client that does not close its side of a finished connection does not delay other clients."""
    with (
        gunicorn(
            ROOT, "tests.service.apps:echoing()", WORKERS=1, MAX_CONCURRENCY=threads
        ) as service,
        ExitStack() as held,
    ):
        for _ in range(30):  # takes a minute if the server waits for each client
            sock = held.enter_context(
                socket.create_connection(("127.0.0.1", service.http_port), timeout=30)
            )
            sock.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        assert post_on_new_connection(service, GOOD)[0] == 200


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_releases_memory_that_load_freed() -> None:
    """A worker returns the memory that load() has freed to the operating system."""
    with gunicorn(ROOT, "tests.service.apps:memory_peak()") as service:
        body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [0]}]}
        status, response = post_on_new_connection(service, body)
        assert status == 200
        assert response["outputs"][0]["data"][0] > 50


def test_long_requests_run_concurrently(tmp_path: Path) -> None:
    """Long requests run concurrently, up to MAX_CONCURRENCY, and health checks still respond."""
    names = ["one", "two"]
    with (
        gunicorn(ROOT, "tests.service.apps:waiting()", WORKERS=1, MAX_CONCURRENCY=3) as service,
        ThreadPoolExecutor() as pool,
    ):
        for _ in range(100):
            assert service.ready()
        running = [
            pool.submit(
                post_on_new_connection,
                service,
                {"inputs": [tensor("folder", str(tmp_path)), tensor("name", name)]},
            )
            for name in names
        ]
        wait_for(lambda: all((tmp_path / f"{name}.begun").exists() for name in names))
        assert service.ready()
        (tmp_path / "go").touch()
        assert [call.result()[0] for call in running] == [200, 200]


def test_works_without_linux_features() -> None:
    """Without the Linux features that macOS lacks, both protocols work, and REST connections stay open."""
    path = python_path(ROOT / "tests/service/macos")
    text = "a" * 20_000_000
    body = json.dumps({"inputs": [tensor("x", text)]}).encode()
    with (
        gunicorn(ROOT, "tests.service.apps:without_epoll()", WORKERS=2, PYTHONPATH=path) as service,
        grpc.insecure_channel(service.grpc_address) as channel,
        ExitStack() as stack,
        ThreadPoolExecutor(16) as pool,
    ):
        kept = [
            stack.enter_context(
                closing(http.client.HTTPConnection(service.http_address, timeout=180))
            )
            for _ in range(100)
        ]
        for _ in range(3):
            assert [
                status for status, _ in pool.map(lambda connection: post(connection, GOOD), kept)
            ] == [200] * len(kept)
        socks = [connection.sock for connection in kept]
        assert post(kept[0], body)[1]["outputs"][0]["data"] == [text]
        blocks = (body[place : place + 2**16] for place in range(0, len(body), 2**16))
        kept[0].request("POST", "/v2/models/test/infer", blocks, encode_chunked=True)
        assert json.loads(kept[0].getresponse().read())["outputs"][0]["data"] == [text]
        assert [connection.sock for connection in kept] == socks
        assert Grpc(channel).infer([("x", "BYTES", [2], ["a", "b"])]).outputs == {
            "y": ("BYTES", [2], [b"a", b"b"])
        }
