"""Inference service for one model (Open Inference Protocol v2). Ids such as R15 are rules of docs/protocol.md."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask import Flask

    from app.config.settings import Settings
    from app.rest.routes import Service
    from grpc_service.server import Server


def create_app(settings: Settings | None = None, module: Any = None) -> Flask:
    """Create the Flask application of `module` (default: app/predict.py). Raise ConfigurationError if it is invalid.

    The model is loaded and warmed up, except in a worker of gunicorn, which does this in a thread.
    """
    from flask import Flask

    from app import runtime
    from app.config.settings import read_settings
    from app.inference.data_plane import DataPlane, import_owner_file
    from app.observability.metrics import Metrics
    from app.observability.observer_queue import ObserverQueue
    from app.observability.tracing import make_spans
    from app.rest.fast_path import FastPath
    from app.rest.middleware import ApiKeyMiddleware, ContextMiddleware, CorsMiddleware
    from app.rest.routes import Service, init_rest

    settings = settings or read_settings()
    plane = DataPlane(module or import_owner_file("predict"), settings, ObserverQueue(), make_spans)
    if not runtime.is_worker:
        plane.load()
        plane.warm_up()
    app = Flask(__name__, static_folder=None)
    metrics = Metrics(plane, "metric_compaction" not in settings.disable_optimizations)
    plane.observer_queue.observers.append(metrics.observe)
    init_rest(app, service := Service(plane, settings, metrics, lambda: make_grpc_server(service)))
    if find_spec("app.ui"):  # missing in projects with model_page=no
        from app.ui.openapi_routes import openapi, swagger
        from app.ui.page import page

        for blueprint in (openapi, swagger, page) if settings.ui_enabled else (openapi,):
            app.register_blueprint(blueprint)
    if "fast_path" not in settings.disable_optimizations:
        app.wsgi_app = FastPath(app, service)  # type: ignore[method-assign]
    import_owner_file("custom").init_app(
        app
    )  # here, so that its middleware sees what the fast path handles
    if settings.api_keys_file:
        app.wsgi_app = ApiKeyMiddleware(app, settings.api_keys_file)  # type: ignore[method-assign]
    if settings.cors_origins:
        app.wsgi_app = CorsMiddleware(app.wsgi_app, settings.cors_origins)  # type: ignore[method-assign]
    app.wsgi_app = ContextMiddleware(app.wsgi_app, plane)  # type: ignore[method-assign]
    return app


def make_grpc_server(service: Service) -> Server:
    from grpc_service.server import Server

    return Server(service.plane, service.settings, service.metrics.statistics, reuse_port=True)
