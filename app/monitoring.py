"""The route of Prometheus: GET /metrics, of all workers, whichever is asked."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flask import Blueprint, Flask, Response, current_app, request
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from app.dataplane import DataPlane
from app.metricfiles import folder, reading
from app.metrics import Metrics

monitoring = Blueprint("monitoring", __name__)
logger = logging.getLogger(__name__)


class Files:
    """What all processes that count in `place` say together; a project's own metrics too."""

    def __init__(self, place: Path):
        self.place, self.has_warned = place, False

    def collect(self) -> Iterator[Any]:
        with reading(self.place) as files:
            if not self.has_warned and not any(each.endswith(f"_{os.getpid()}.db") for each in files):
                self.has_warned = True
                logger.warning("something has removed the metrics from %s: they are lost until HUP", self.place)
            metrics = MultiProcessCollector.merge(files)
        yield from metrics


class Both:
    """The service's metrics, then a project's own, which are on prometheus_client's registry; of one process."""

    def __init__(self, metrics: Metrics):
        self.metrics = metrics

    def collect(self) -> Iterator[Any]:
        yield from self.metrics.registry.collect()
        yield from REGISTRY.collect()


def init_monitoring(app: Flask, plane: DataPlane) -> Metrics:
    """Puts the route on `app`, and counts the calls of `plane`."""
    metrics = Metrics(plane)
    plane.journal.observers.append(metrics.observe)
    place, registry = folder(), CollectorRegistry(auto_describe=False)
    registry.register(Files(place) if place else Both(metrics))
    app.extensions["monitoring"] = plane, metrics, registry
    app.register_blueprint(monitoring)
    return metrics


@monitoring.get("/metrics")
def show_metrics() -> Response:
    """Every request counts that was answered before, by any worker."""
    plane, metrics, registry = current_app.extensions["monitoring"]
    plane.admission.step_aside()
    plane.journal.settle()
    metrics.publish()
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(registry), content_type=content_type)
