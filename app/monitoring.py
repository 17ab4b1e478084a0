"""GET /metrics, in the format of Prometheus: the metrics of all workers, from any of them."""

from __future__ import annotations

from flask import Blueprint, Flask, Response, current_app, request
from prometheus_client.exposition import choose_encoder

from app.dataplane import DataPlane
from app.metrics import Metrics
from app.recorder import CALL

monitoring = Blueprint("monitoring", __name__)


def init_monitoring(app: Flask, plane: DataPlane) -> Metrics:
    """Add the route to `app`, and count the calls of `plane`. Call init_rest first, which has the settings."""
    switched_off = app.extensions["rest"].settings.disable_optimizations
    metrics = Metrics(plane, use_internals="metric_compaction" not in switched_off)
    plane.journal.observers.append(metrics.observe)
    app.extensions["monitoring"] = plane, metrics
    app.register_blueprint(monitoring)
    return metrics


@monitoring.get("/metrics")
def show_metrics() -> Response:
    """Return the metrics, with every request that any worker has completed before."""
    plane, metrics = current_app.extensions["monitoring"]
    request.environ[CALL].release_thread()
    plane.journal.settle()
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(metrics.registry), content_type=content_type)
