"""Requests that wait for a thread: full queue, deadline, disconnected client."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from oip_conformance.wires import Rest
from tests.kit.processes import wait_for
from tests.kit.waiting_client import BOTH, MICROSECONDS, begin_to_wait, serve


@pytest.mark.parametrize("protocol", BOTH)
def test_full_queue_rejects_requests(stack: ExitStack, tmp_path: Path, protocol: str) -> None:
    """Both protocols share MAX_CONCURRENCY and MAX_QUEUE_SIZE, and a request beyond them is rejected and never runs."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, MAX_QUEUE_SIZE=2)
    running = [client.begin("rest", "first")]
    running += [client.wait(protocol, f"{protocol} waits") for protocol in BOTH]
    wait_for(client.is_full)
    assert (
        client.infer(protocol, "rejected")
        == {"rest": "UNAVAILABLE", "grpc": "RESOURCE_EXHAUSTED"}[protocol]
    )
    (tmp_path / "go").touch()
    assert {call.result() for call in running} == {"ok"}
    assert not client.has_begun("rejected")
    assert client.infer(protocol, "later") == "ok"


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("has_timeout", [True, False])
def test_expired_request_never_runs(
    stack: ExitStack, tmp_path: Path, protocol: str, has_timeout: bool
) -> None:
    """A request that is queued for longer than its `timeout` or REQUEST_TIMEOUT_SECONDS is rejected and never runs."""
    limit = {} if has_timeout else {"REQUEST_TIMEOUT_SECONDS": 0.2}
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, **limit)
    running = client.begin("rest", "first")
    assert (
        client.infer(protocol, "late", MICROSECONDS // 5 if has_timeout else 0)
        == "DEADLINE_EXCEEDED"
    )
    (tmp_path / "go").touch()
    assert running.result() == "ok"
    assert client.infer(protocol, "later", MICROSECONDS * 60) == "ok"
    assert not client.has_begun("late")


@pytest.mark.parametrize("timeout", ["1", True, -1, 1.5])
def test_rejects_malformed_timeout(stack: ExitStack, tmp_path: Path, timeout: Any) -> None:
    """A `timeout` that is negative or not an integer is rejected."""
    from app import create_app
    from tests.kit import models

    response = Rest(create_app(module=models.echo("FP32", [-1])).test_client()).infer(
        [("x", "FP32", [1], [1.0])], parameters={"timeout": timeout}
    )
    assert response.kind == "INVALID_ARGUMENT"
    assert "timeout" in response.text


@pytest.mark.parametrize("protocol", BOTH)
def test_queued_request_of_disconnected_client_never_runs(
    stack: ExitStack, tmp_path: Path, protocol: str
) -> None:
    """A queued request is dropped if its gRPC call is canceled or its connection is closed."""
    client = serve(stack, tmp_path, WORKERS=1, MAX_CONCURRENCY=1, MAX_QUEUE_SIZE=1)
    running = client.begin("rest", "first")
    inputs = {"folder": str(tmp_path), "name": "gone"}
    request = InferenceRequest(
        [RequestInput(name, "BYTES", [1], [text]) for name, text in inputs.items()], "test"
    )
    for _ in range(100):  # is_full() may take the only place in the queue first
        leave = begin_to_wait(client, protocol, request)
        if client.is_full():
            break
        leave()
    leave()
    assert (
        client.live()
    )  # over the same channel, so that the service has read the cancellation before
    (tmp_path / "go").touch()
    assert running.result() == "ok"
    assert client.infer("rest", "later") == "ok"
    assert not client.has_begun("gone")
