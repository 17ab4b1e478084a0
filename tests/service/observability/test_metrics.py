"""GET /metrics: values are correct across workers and protocols, even if workers are killed or replaced."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from app.observability.metric_files import observe_all
from app.observability.metrics import SECONDS
from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from oip_conformance.wires import Grpc
from tests.kit import models
from tests.kit.processes import Running, gunicorn, wait_for
from tests.kit.scrapes import Scrape, fetch, scrape
from tests.kit.waiting_client import BOTH, Client, begin_to_wait, is_live
from tests.service.observability.metric_requests import (
    GOOD,
    ROOT,
    assert_histogram,
    post,
    rest,
    rpc,
    rpc_statistics,
    settled,
    statistics,
)

HISTOGRAMS = [
    "inference_request_duration_seconds",
    "inference_request_stage_duration_seconds",
    "inference_request_size_bytes",
]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    """Start an echo model with two workers."""
    with gunicorn(ROOT, "tests.service.apps:counting()", WORKERS=2) as service:
        wait_for(lambda: scrape(service)("inference_workers_ready") == 2)
        yield service


def test_requests_are_counted_by_protocol_method_and_status(service: Running) -> None:
    """Each request counts once, regardless of which worker handles it and which worker serves the scrape."""
    before = scrape(service)
    for _ in range(6):
        assert rest(service)[0] == 200
        assert rpc(service) == "ok"
    for _ in range(3):
        assert post(service, b"{", {})[0] == 400
        assert rpc(service, shape=[3]) == "INVALID_ARGUMENT"
    assert rest(service, path="/v2/models/other/infer")[0] == 404
    assert rpc(service, "other") == "NOT_FOUND"
    assert post(service, b"", {}, "/nowhere")[0] == 404
    with grpc.insecure_channel(service.grpc_address) as channel:
        assert Grpc(channel).call("ServerLive").live
    expected = {
        ("rest", "infer", "200"): 6,
        ("grpc", "infer", "OK"): 6,
        ("rest", "infer", "400"): 3,
        ("grpc", "infer", "INVALID_ARGUMENT"): 3,
        ("rest", "infer", "404"): 1,
        ("grpc", "infer", "NOT_FOUND"): 1,
        ("rest", "unknown", "404"): 1,
        ("grpc", "server_live", "OK"): 1,
    }

    def wait_for_growth(now: Scrape) -> dict[tuple[str, str, str], float]:
        growth = {}
        for name, labels, value in now.samples():
            if name == "inference_requests_total" and labels["operation"] not in (
                "metrics",
                "server_ready",
            ):
                growth[labels["protocol"], labels["operation"], labels["code"]] = value - before(
                    name, **labels
                )
        return {labels: value for labels, value in growth.items() if value}

    wait_for(lambda: wait_for_growth(scrape(service)) == expected)
    for _ in range(10):
        assert wait_for_growth(scrape(service)) == expected
    assert scrape(service)("own_calls_total") - before("own_calls_total") == 12


def test_invalid_requests_are_not_in_the_predict_stage(service: Running) -> None:
    """A request that does not match METADATA is not in the histogram of the predict stage."""
    before = scrape(service)
    other = InferenceRequest([RequestInput("other", "FP32", [2], [1, 2])], "test")
    for _ in range(3):
        assert post(service, *other.to_http())[0] == 400
    assert rest(service)[0] == 200
    done = before("inference_requests_total", protocol="rest", operation="infer") + 4
    now = settled(service, "inference_requests_total", done, protocol="rest", operation="infer")
    for stage, count in (("decode", 4), ("predict", 1)):
        labels = {"protocol": "rest", "stage": stage}
        name = "inference_request_stage_duration_seconds_count"
        assert now(name, **labels) - before(name, **labels) == count


def test_histograms_agree_with_the_counters(service: Running) -> None:
    """Buckets add up, both protocols have all stages, and the sizes are those of the bodies."""
    before = scrape(service)
    responses = [rest(service) for _ in range(4)]
    assert {status for status, _ in responses} == {200}
    assert [rpc(service) for _ in range(4)] == ["ok"] * 4
    done = before("inference_requests_total", operation="infer") + 8
    now = settled(service, "inference_requests_total", done, operation="infer")
    for protocol in BOTH:
        label = {"protocol": protocol}
        for stage in ("decode", "queue", "predict", "encode"):
            name = "inference_request_stage_duration_seconds_count"
            assert now(name, stage=stage, **label) - before(name, stage=stage, **label) == 4
        parts = now("inference_request_stage_duration_seconds_sum", **label)
        assert (
            0 < parts <= now("inference_request_duration_seconds_sum", operation="infer", **label)
        )
    for name, size in (
        ("request", 4 * len(GOOD.to_http()[0])),
        ("response", sum(size for _, size in responses)),
    ):
        name = f"inference_{name}_size_bytes_sum"
        assert now(name, protocol="rest") - before(name, protocol="rest") == size
        assert now(name, protocol="grpc") > before(name, protocol="grpc")
    for name in HISTOGRAMS:
        assert_histogram(now, name)
    assert now("inference_request_duration_seconds_count") == now("inference_requests_total")


def test_statistics_of_all_workers(service: Running) -> None:
    """T3: the statistics of both transports include each completed request, whichever workers respond."""
    before = statistics(service)
    for index in range(6):
        assert rest(service)[0] == 200
        assert rpc(service) == "ok"
        assert rest(service, path="/v2/models/other/infer")[0] == 404
        assert post(service, b"{", {})[0] == 400
        now, over_grpc = statistics(service), rpc_statistics(service)
        for name, count in (("success", 2), ("fail", 1), ("queue", 2)):
            expected = before["inference_stats"][name]["count"] + count * (index + 1)
            assert now["inference_stats"][name]["count"] == expected
            assert getattr(over_grpc.inference_stats, name).count == expected
    assert now["execution_count"] == now["inference_count"] == before["inference_count"] + 12


def test_formats(service: Running) -> None:
    """The default is Prometheus' text format. A client that accepts OpenMetrics receives OpenMetrics."""
    text, content_type = fetch(service)
    assert content_type.startswith("text/plain; version=0.0.4")
    assert "# TYPE inference_requests_total counter" in text
    text, content_type = fetch(
        service, "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"
    )
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


def test_in_flight_requests_are_counted_immediately(tmp_path: Path) -> None:
    """Running requests of every worker and protocol are counted before they finish."""
    with ExitStack() as stack:
        service = stack.enter_context(
            gunicorn(ROOT, "tests.service.apps:waiting()", WORKERS=2, MAX_CONCURRENCY=1)
        )
        client = Client(service, tmp_path, stack)
        wait_for(lambda: scrape(service)("inference_workers_ready") == 2)
        running = [
            client.begin("rest", "first"),
            client.pool.submit(client.infer, "grpc", "second"),
        ]
        settled(service, "inference_requests_in_flight", 2)
        assert scrape(service)("inference_requests_total", operation="infer") == 0
        (tmp_path / "go").touch()
        assert [call.result() for call in running] == ["ok", "ok"]
        now = settled(service, "inference_requests_in_flight", 0)
        assert now("inference_model_ready") == 1
        assert now("inference_model_info", name="test", version="1", platform="tests") == 1


def test_rejected_requests_are_counted_by_reason(tmp_path: Path) -> None:
    """Rejected requests are counted by reason for both protocols, and the duration of load() is reported."""
    with ExitStack() as stack:
        settings = {"FOLDER": tmp_path, "WORKERS": 1, "MAX_CONCURRENCY": 1, "MAX_QUEUE_SIZE": 1}
        service = stack.enter_context(
            gunicorn(ROOT, "tests.service.apps:loading()", is_ready=is_live, **settings)
        )
        client = Client(service, tmp_path, stack)
        assert [client.infer(protocol) for protocol in BOTH] == ["UNAVAILABLE"] * 2
        assert (
            scrape(service)("inference_workers_ready")
            == scrape(service)("inference_model_ready")
            == 0
        )
        (tmp_path / "loaded").touch()
        settled(service, "inference_workers_ready", 1)
        running = client.begin("rest", "first")
        for protocol in BOTH:
            assert client.infer(protocol, "late", 10**4) == "DEADLINE_EXCEEDED"
        tensors = [
            RequestInput(name, "BYTES", [1], [text])
            for name, text in (("folder", str(tmp_path)), ("name", "x"))
        ]
        leave = begin_to_wait(client, "rest", InferenceRequest(tensors, "test"))
        settled(service, "inference_requests_in_flight", 2)
        assert client.infer("rest") == "UNAVAILABLE"
        assert client.infer("grpc") == "RESOURCE_EXHAUSTED"
        leave()
        (tmp_path / "go").touch()
        assert running.result() == "ok"
        settled(
            service,
            "inference_requests_rejected_total",
            1,
            protocol="rest",
            reason="client_disconnected",
        )
        now = scrape(service)
        for protocol in BOTH:
            for reason in ("unavailable", "deadline_exceeded", "overloaded"):
                assert (
                    now("inference_requests_rejected_total", protocol=protocol, reason=reason) == 1
                )
        assert now("inference_requests_total", code="503") == 2
        assert now("inference_model_load_duration_seconds") > 0


def test_applications_in_one_process_count_separately(serve) -> None:
    """Without gunicorn, each application counts separately in memory and also exposes the metrics of the process."""
    apps = [serve(models.echo("FP32", [-1])) for _ in range(2)]
    assert apps[0].rest.infer([("x", "FP32", [1], [1.0])]).is_success
    assert apps[0].grpc.infer([("x", "FP32", [1], [1.0])]).is_success
    texts = [app.client.get("/metrics").text for app in apps]
    done = [Scrape(text)("inference_requests_total", operation="infer") for text in texts]
    assert done == [2, 0]
    assert "python_info" in Scrape(texts[0]).names()


def test_observe_all() -> None:
    """observe_all() has the same result as calling prometheus_client's observe() for each value."""
    numbers = random.Random(1)
    values = [numbers.choice([*SECONDS, numbers.expovariate(1), 100.0]) for _ in range(500)]
    texts = []
    for use_internals in (False, True):
        registry = CollectorRegistry()
        histogram = Histogram("x", "y", ("a", "b"), buckets=SECONDS, registry=registry)
        observe_all(histogram.labels("1", "2"), values, use_internals)
        texts.append(re.sub(r"(?m)^x_(created|sum).*", "", generate_latest(registry).decode()))
    assert texts[0] == texts[1]
    assert 'x_count{a="1",b="2"} 500.0' in texts[0]
