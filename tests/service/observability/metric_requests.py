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
    with closing(http.client.HTTPConnection(service.http_address, timeout=60)) as connection:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, len(response.read())


def rest(service: Running, **options: Any) -> tuple[int, int]:
    return post(service, *GOOD.to_http(), **options)


def rpc(service: Running, model: str = "test", shape: list[int] | None = None) -> str:
    """Send a request on its own connection and return the kind of its result."""
    with service.own_channel() as channel:
        return Grpc(channel).infer([("x", "FP32", shape or [2], [1.0, 2.0])], model=model).kind


def statistics(service: Running) -> dict[str, Any]:
    """Return the statistics of the model over a new connection, so that any worker may respond."""
    (stats,) = json.loads(service.get("/v2/models/test/stats") or b"")["model_stats"]
    return stats


def rpc_statistics(service: Running) -> Any:
    with service.own_channel() as channel:
        (stats,) = Grpc(channel).call("ModelStatistics", name="test").model_stats
    return stats


def settled(service: Running, name: str, value: float, **labels: str) -> Scrape:
    """Wait until a scrape has this value and return the scrape. The metrics of other workers can arrive late."""
    found: list[Scrape] = []

    def holds() -> bool:
        found.append(scrape(service))
        return found[-1](name, **labels) == value

    wait_for(holds)
    assert_grew(found)
    return found[-1]


def assert_histogram(now: Scrape, name: str) -> None:
    """Check that the buckets are cumulative and that the last one equals the count."""
    rows: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for each, labels, value in now.samples():
        if each == f"{name}_bucket":
            bound = float(labels.pop("le"))
            rows.setdefault(tuple(labels.items()), []).append((bound, value))
    assert rows
    for labels, buckets in rows.items():
        values = [value for _, value in sorted(buckets)]
        assert values == sorted(values)
        assert values[-1] == now(f"{name}_count", **dict(labels))
