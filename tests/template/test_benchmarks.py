"""dev/benchmarks: failed requests are neither counted as successes nor mistaken for missing support."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import grpc
import pytest

from dev.benchmarks.cases import CASES
from dev.benchmarks.load import h2load

G1 = next(case for case in CASES if case.name == "G1")
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
        yield f"127.0.0.1:{port}"
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
