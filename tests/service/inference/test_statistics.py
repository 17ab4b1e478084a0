"""Statistics of the model for Triton's tools, over both transports."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from app.protocol.metadata import MetadataTensor
from grpc_service.messages import SERVICE_NAME
from oip_conformance import messages
from oip_conformance.wires import FORMS, error_message
from tests.kit import models
from tests.kit.processes import wait_for
from tests.kit.scrapes import Scrape
from tests.kit.service import Service
from tests.service.inference.batches import BAD, QueuedRequests

STATS = "/v2/models/test/stats"
ONE = ("x", "FP32", [1], [1.0])
MINUTE_MS = 60_000
Stats = dict[str, Any]


def statistics(service: Service, path: str = STATS) -> Stats:
    """Return the statistics of the only model. Check that gRPC returns the same."""
    body = service.client.get(path).json
    assert service.grpc.call("ModelStatistics", name="test") == messages.ModelStatisticsResponse(
        **body
    )
    (stats,) = body["model_stats"]
    return stats


def counts(stats: Stats) -> dict[str, int]:
    """Return the counts, and the number of calls of predict() by batch size."""
    totals = {name: stats["inference_stats"][name]["count"] for name in ("success", "fail")}
    totals |= {"inferences": stats["inference_count"], "executions": stats["execution_count"]}
    return totals | {
        str(batch["batch_size"]): batch["compute_infer"]["count"] for batch in stats["batch_stats"]
    }


@pytest.fixture
def service(serve: Callable[..., Service]) -> Service:
    return serve(models.echo("FP32", [-1]))


def test_without_requests(service: Service) -> None:
    """T3: before the first request, the response has all keys, and each number is 0."""
    zero = {"count": 0, "ns": 0}
    names = (
        "success",
        "fail",
        "queue",
        "compute_input",
        "compute_infer",
        "compute_output",
        "cache_hit",
        "cache_miss",
    )
    assert statistics(service) == {
        "name": "test",
        "version": "1",
        "last_inference": 0,
        "inference_count": 0,
        "execution_count": 0,
        "inference_stats": dict.fromkeys(names, zero),
        "batch_stats": [],
        "memory_usage": [],
    }
    assert "statistics" in service.client.get("/v2").json["extensions"]
    assert "statistics" in service.grpc.call("ServerMetadata").extensions


def test_successful_requests(service: Service) -> None:
    """T3: each request of any form counts once. The durations of its stages add up to its duration."""
    for form in FORMS:
        assert service.forms[form].infer([("x", "FP32", [2], [1.0, 2.0])]).is_success
    stats = statistics(service)
    assert counts(stats) == {"success": 4, "fail": 0, "inferences": 4, "executions": 4, "1": 4}
    durations = stats["inference_stats"]
    steps = [
        durations[name] for name in ("queue", "compute_input", "compute_infer", "compute_output")
    ]
    assert {step["count"] for step in steps} == {4}
    assert all(step["ns"] > 0 for step in steps)
    assert durations["success"]["ns"] == sum(step["ns"] for step in steps)
    assert (
        durations["cache_hit"]
        == durations["cache_miss"]
        == durations["fail"]
        == {"count": 0, "ns": 0}
    )
    (batch,) = stats["batch_stats"]
    assert {
        name: durations[name] for name in ("compute_input", "compute_infer", "compute_output")
    } == {name: step for name, step in batch.items() if name != "batch_size"}
    assert abs(stats["last_inference"] - 1000 * time.time()) < MINUTE_MS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        ([], "INVALID_ARGUMENT"),
        ([("x", "FP32", [1, 2], [1.0, 2.0])], "INVALID_ARGUMENT"),
        ([("x", "FP32", [1], [BAD])], "INTERNAL"),
    ],
    ids=["no input", "invalid shape", "exception"],
)
def test_failed_requests(serve, form: str, inputs: list, kind: str) -> None:
    """T3: a failed request counts only in `fail`, with its duration."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if BAD in x:
            raise ValueError("bad")
        return x

    service = serve(
        models.model(
            [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])], predict
        )
    )
    assert service.forms[form].infer(inputs).kind == kind
    stats = statistics(service)
    assert counts(stats) == {"success": 0, "fail": 1, "inferences": 0, "executions": 0}
    assert stats["inference_stats"]["fail"]["ns"] > 0
    assert stats["last_inference"] == 0


def test_output_without_json_form(service: Service) -> None:
    """T3: a request whose response cannot be sent counts only in `fail`."""
    assert service.forms["rest binary"].infer([("x", "FP32", [1], [float("inf")])]).is_success
    blob = np.array([np.inf], "<f4").tobytes()
    tensor = {
        "name": "x",
        "datatype": "FP32",
        "shape": [1],
        "parameters": {"binary_data_size": len(blob)},
    }
    error_message(service.rest.post({"inputs": [tensor]}, blob), 400)
    assert counts(statistics(service)) == {
        "success": 1,
        "fail": 1,
        "inferences": 1,
        "executions": 1,
        "1": 1,
    }


def test_requests_that_do_not_count(service: Service) -> None:
    """T3: requests for other models and versions, and other methods of the path, do not count."""
    for client in (service.rest, service.grpc):
        assert (
            client.infer([ONE], model="other").kind
            == client.infer([ONE], version="2").kind
            == "NOT_FOUND"
        )
    assert service.client.options("/v2/models/test/infer").status_code == 200
    assert service.client.get("/v2/models/test/infer").status_code == 405
    assert counts(statistics(service)) == {
        "success": 0,
        "fail": 0,
        "inferences": 0,
        "executions": 0,
    }


@pytest.mark.parametrize("path", [STATS, "/v2/models/test/versions/1/stats", "/v2/models/stats"])
def test_paths(service: Service, path: str) -> None:
    """T3, R2: each path supports GET and HEAD, also with a trailing slash."""
    assert service.rest.infer([ONE]).is_success
    body = service.client.get(path).json
    assert counts(statistics(service, path))["success"] == 1
    for slashed in (path, f"{path}/"):
        assert service.client.get(slashed).json == body
        head = service.client.head(slashed)
        assert (head.status_code, head.data, head.mimetype) == (200, b"", "application/json")
    assert service.client.post(path).status_code == 405


def test_model_named_stats(serve) -> None:
    """R6, T3: if the model is named `stats`, the path without a model returns its metadata."""
    client = serve(models.echo("FP32", [-1]), model_name="stats").client
    assert client.get("/v2/models/stats").json["inputs"][0]["name"] == "x"
    for path in ("/v2/models/stats/stats", "/v2/models/stats/versions/1/stats"):
        assert client.get(path).json["model_stats"][0]["name"] == "stats"


def test_batches(queued_requests: Callable[..., QueuedRequests]) -> None:
    """T3: with batching, inferences are rows, and an execution is a call of predict() for several requests."""
    waiting = queued_requests()
    for form in FORMS:
        waiting.send(form, [1, 2])
    assert waiting.calls() == [8]
    stats = statistics(waiting.service)
    assert counts(stats) == {
        "success": 5,
        "fail": 0,
        "inferences": 9,
        "executions": 2,
        "1": 1,
        "8": 1,
    }
    durations, batch = stats["inference_stats"], stats["batch_stats"][1]
    assert durations["compute_infer"]["ns"] > 4 * batch["compute_infer"]["ns"]
    assert durations["queue"]["count"] == durations["compute_input"]["count"] == 5


def test_failed_request_in_batch(queued_requests: Callable[..., QueuedRequests]) -> None:
    """T3: if a batch fails, each of its requests counts as one execution, except the one that fails."""
    waiting = queued_requests()
    for form, value in zip(FORMS, [1, BAD, 3, 4], strict=True):
        waiting.send(form, [value, value])
    assert waiting.calls() == [8, 2, 2, 2, 2]
    expected = {"success": 4, "fail": 1, "inferences": 7, "executions": 4, "1": 1, "2": 3}
    assert counts(statistics(waiting.service)) == expected


def test_large_batches(serve) -> None:
    """T3: all calls of predict() with 1,024 rows or more have the same batch size. Their rows are counted."""
    service = serve(models.echo("FP32", [-1]), max_batch_size=2)
    for rows in (0, 1, 1023, 1024, 3000):
        assert service.grpc.infer([("x", "FP32", [rows], [1.0] * rows)]).is_success
    totals = counts(statistics(service))
    sizes = {"1": 2, "1023": 1, "1024": 2}
    assert totals == {"success": 5, "fail": 0, "inferences": 5049, "executions": 5, **sizes}


METRICS = "/metrics"
# Paths or methods, with the statuses of a success and of an overload.
READERS = {
    METRICS: ("200", "503"),
    STATS: ("200", "503"),
    "ModelStatistics": ("OK", "RESOURCE_EXHAUSTED"),
}


class Reads:
    """Reads of the metrics or statistics, which end when the event `may_end` is set."""

    def __init__(self, service: Service, context: pytest.MonkeyPatch):
        self.service = service
        self.count = 0
        self.may_end = threading.Event()
        context.setattr(service.core.observer_queue, "wait_for_workers", self._wait)

    def _wait(self) -> None:
        self.count += 1
        assert self.may_end.wait(60)
        self.service.core.observer_queue.flush()

    def ask(self, reader: str) -> tuple[str, str | None, Any]:
        """Return the status, the time after which the client may retry, and the body or message."""
        if reader.startswith("/"):
            response = self.service.app.test_client().get(reader)
            body = response.json if response.is_json else response.text
            return str(response.status_code), response.headers.get("Retry-After"), body

        method = self.service.channel.unary_unary(f"/{SERVICE_NAME}/{reader}")
        call = method.future(b"", timeout=60)
        metadata = dict(call.trailing_metadata())
        body = None
        if call.code() is grpc.StatusCode.OK:
            body = messages.ModelStatisticsResponse.FromString(call.result())
        return call.code().name, metadata.get("retry-after"), body


@pytest.fixture
def reads(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Reads of an echo."""
    with monkeypatch.context() as context:
        reads = Reads(service, context)
        yield reads
        reads.may_end.set()


@pytest.mark.parametrize("reader", READERS)
def test_waiting_clients_share_a_read(reads: Reads, reader: str) -> None:
    """T3: three threads of both protocols wait for the metrics or statistics and share a read. Others retry."""
    success, overload = READERS[reader]
    with ThreadPoolExecutor(20) as pool:
        futures = [pool.submit(reads.ask, reader) for _ in range(20)]
        wait_for(lambda: sum(future.done() for future in futures) == 17)

        # All readers have the same limit. Probes still get a thread.
        for other, (_, code) in READERS.items():
            assert reads.ask(other)[:2] == (code, "1")
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/test/ready"):
            assert reads.service.client.get(path).status_code == 200
        assert reads.service.grpc.call("ServerReady").ready

        reads.may_end.set()
        results = [future.result() for future in futures]
    assert Counter((code, retry) for code, retry, _ in results) == {
        (success, None): 3,
        (overload, "1"): 17,
    }
    # The first client begins a read. The other two ask too late for it.
    assert reads.count == 2


@pytest.mark.parametrize("reader", READERS)
def test_waiting_clients_see_earlier_requests(reads: Reads, reader: str) -> None:
    """T3: the metrics or statistics contain a request that ended before, also if a read had already begun."""

    def count(body: Any) -> int:
        if reader == METRICS:
            samples = Scrape(body)
            return int(samples("inference_requests_total", operation="infer"))
        if reader == STATS:
            body = messages.ModelStatisticsResponse(**body)
        return int(body.model_stats[0].inference_count)

    with ThreadPoolExecutor(20) as pool:
        earlier = pool.submit(reads.ask, reader)
        wait_for(lambda: reads.count == 1)
        assert reads.service.rest.infer([ONE]).kind == "ok"
        futures = [pool.submit(reads.ask, reader) for _ in range(10)]
        wait_for(lambda: sum(future.done() for future in futures) == 8)
        assert not earlier.done()
        reads.may_end.set()
        later = [future.result() for future in futures]

    assert [count(body) for code, _, body in later if code in ("200", "OK")] == [1, 1]
    if reader != METRICS:
        assert count(earlier.result()[2]) == 0


def test_later_requests_are_not_included(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """T3: requests that end while the call waits for other workers count only in the next call."""
    assert service.rest.infer([ONE]).is_success
    assert service.rest.infer([]).kind == "INVALID_ARGUMENT"

    def wait() -> None:
        for _ in range(3):
            assert service.rest.infer([ONE]).is_success
            assert service.rest.infer([]).kind == "INVALID_ARGUMENT"

    with monkeypatch.context() as context:
        context.setattr(service.core.observer_queue, "wait_for_workers", wait)
        first = service.client.get(STATS).json["model_stats"][0]
        second = service.client.get(STATS).json["model_stats"][0]

    assert counts(first) == {"success": 1, "fail": 1, "inferences": 1, "executions": 1, "1": 1}
    assert counts(second) == {"success": 4, "fail": 4, "inferences": 4, "executions": 4, "1": 4}
    assert counts(statistics(service)) == {
        "success": 7,
        "fail": 7,
        "inferences": 7,
        "executions": 7,
        "1": 7,
    }
