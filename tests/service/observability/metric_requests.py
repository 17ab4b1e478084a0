"""Requests that are counted, and the metrics after them."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from oip_conformance.wires import Grpc
from tests.kit.processes import Running, wait_for
from tests.kit.scrapes import Scrape, assert_grew, scrape

ROOT = Path(__file__).parents[3]
GOOD = InferenceRequest([RequestInput("x", "FP32", [2], [1, 2])], "test")


def post(
    service: Running, body: bytes, headers: dict[str, str], path: str = "/v2/models/test/infer"
) -> tuple[int, int]:
    """Return the status and the size of the response."""
    with closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, len(response.read())


def rest(service: Running, **options: Any) -> tuple[int, int]:
    """Send GOOD, and return the status and the size of the response."""
    body, headers = GOOD.to_http()
    return post(service, body, headers, **options)


def rpc(service: Running, model: str = "test", shape: list[int] | None = None) -> str:
    """Send a request on a separate connection, and return the kind of its result."""
    tensor = ("x", "FP32", shape or [2], [1.0, 2.0])
    with service.own_channel() as channel:
        response = Grpc(channel).infer([tensor], model=model)
    return response.kind


def statistics(service: Running) -> dict[str, Any]:
    """Return the statistics of the model over a new connection, so that any worker may respond."""
    body = service.get("/v2/models/test/stats")
    assert body is not None
    (stats,) = json.loads(body)["model_stats"]
    return stats


def rpc_statistics(service: Running) -> Any:
    """Return the statistics of the model over gRPC."""
    with service.own_channel() as channel:
        (stats,) = Grpc(channel).call("ModelStatistics", name="test").model_stats
    return stats


def settled(service: Running, name: str, value: float, **labels: str) -> Scrape:
    """Wait until a scrape has this value, and return the scrape.

    The metrics of other workers can arrive late.
    """
    scrapes: list[Scrape] = []

    def has_value() -> bool:
        last_scrape = scrape(service)
        scrapes.append(last_scrape)
        return last_scrape(name, **labels) == value

    wait_for(has_value)
    assert_grew(scrapes)
    return scrapes[-1]


def assert_histogram(scrape: Scrape, name: str) -> None:
    """Check that the buckets are cumulative and that the last one equals the count."""
    # Pairs of a bound and a count, by the labels of a histogram.
    buckets_by_labels: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for sample_name, labels, value in scrape.samples():
        if sample_name == f"{name}_bucket":
            bound = float(labels.pop("le"))
            buckets = buckets_by_labels.setdefault(tuple(labels.items()), [])
            buckets.append((bound, value))

    assert buckets_by_labels
    for label_items, buckets in buckets_by_labels.items():
        counts = [count for _, count in sorted(buckets)]
        assert counts == sorted(counts)
        assert counts[-1] == scrape(f"{name}_count", **dict(label_items))
