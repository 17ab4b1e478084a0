"""dev/benchmarks: failed requests are neither counted as successes nor mistaken for missing support."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path

import grpc
import pytest

from dev.benchmarks.cases import CASES
from dev.benchmarks.load import h2load
from dev.benchmarks.report import OURS
from dev.benchmarks.requests import RequestFailed, send_grpc_request, send_http_request
from dev.benchmarks.support import is_unsupported

cases = {case.name: case for case in CASES}
S1 = cases["S1"]
B1 = cases["B1"]
G1 = cases["G1"]
Handler = Callable[[bytes, grpc.ServicerContext], bytes]


@contextmanager
def serve_grpc(handler: Handler) -> Iterator[str]:
    """Serve every method with `handler`, and yield the address."""

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(handler)

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[Handlers()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


def echo(body: bytes, context: grpc.ServicerContext) -> bytes:
    return body


calls = count()


def fail_every_second(body: bytes, context: grpc.ServicerContext) -> bytes:
    if next(calls) % 2:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "The queue is full")
    return body


@pytest.mark.skipif(not shutil.which("h2load"), reason="h2load is not installed")
@pytest.mark.parametrize(("handler", "failed_share"), [(echo, 0), (fail_every_second, 0.5)])
def test_grpc_errors_are_failed_requests(
    handler: Handler, failed_share: float, tmp_path: Path
) -> None:
    """Calls with the HTTP status 200 and a gRPC error count as failed."""
    with serve_grpc(handler) as address:
        row = h2load(
            G1,
            address,
            seconds=1,
            connections=2,
            pinned=[],
            folder=tmp_path,
            message_length=len(G1.body),
        )

    assert row.rate > 0
    assert row.failed == pytest.approx(row.rate * failed_share, abs=2)


@contextmanager
def serve_http(status: int) -> Iterator[str]:
    """Answer every POST request with `status`, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("server_name", ["Triton", OURS])
@pytest.mark.parametrize(
    ("status", "is_rejection"), [(400, True), (404, True), (501, True), (500, False), (503, False)]
)
def test_http_status_of_unsupported_case(status: int, is_rejection: bool, server_name: str) -> None:
    """A peer's 4xx or 501 means that it does not support a case. Any other error is a fault, as all of this service."""
    with serve_http(status) as address, pytest.raises(RequestFailed, match=str(status)) as failure:
        send_http_request(S1, address)

    expected = is_rejection and server_name != OURS
    assert is_unsupported(S1, server_name, failure.value) == expected


@pytest.mark.parametrize("server_name", ["Triton", OURS])
@pytest.mark.parametrize(
    ("code", "is_rejection"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, True),
        (grpc.StatusCode.INVALID_ARGUMENT, True),
        (grpc.StatusCode.NOT_FOUND, True),
        (grpc.StatusCode.UNKNOWN, False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, False),
    ],
)
def test_grpc_code_of_unsupported_case(
    code: grpc.StatusCode, is_rejection: bool, server_name: str
) -> None:
    """A peer's rejection means that it does not support a case. Any other error is a fault, as all of this service."""

    def fail(body: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, "")
        return b""

    with serve_grpc(fail) as address, pytest.raises(RequestFailed, match=code.name) as failure:
        send_grpc_request(G1, address)

    expected = is_rejection and server_name != OURS
    assert is_unsupported(G1, server_name, failure.value) == expected


def test_mlserver_has_no_binary_tensors_over_rest() -> None:
    """MLServer answers 500 to binary tensors over REST, which is no fault of the server. Over gRPC, it supports them."""
    error = RequestFailed("500")

    assert is_unsupported(B1, "MLServer", error)
    assert not is_unsupported(S1, "MLServer", error)
    assert not is_unsupported(G1, "MLServer", error)
