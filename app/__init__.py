"""Inference service for one model (Open Inference Protocol v2).

Ids in comments, such as R15, are rules of docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask import Flask

    from app.config.settings import Settings
    from app.rest.middleware import WsgiApp
    from app.service import Service


def create_app(settings: Settings | None = None, module: Any = None) -> Flask:
    """Create the Flask application of `module` (default: app/predict.py).

    The model is loaded and warmed up, except in a worker of gunicorn, which does this in a thread.
    `settings` are those of the environment by default. model_file() uses them, too. Raise
    ConfigurationError if the module or a setting is invalid.
    """
    from flask import Flask

    from app import runtime
    from app.config.settings import read_settings, use_settings
    from app.inference.owner_files import import_owner_file
    from app.rest.fast_path import FastPath
    from app.rest.routes import init_rest
    from app.service import Service

    settings = settings or read_settings()
    use_settings(settings)
    service = Service(settings, module or import_owner_file("predict"))
    if not runtime.is_worker:
        service.load()

    app = Flask(__name__, static_folder=None)
    init_rest(app, service)
    register_pages(app, settings)

    # From here on, from the inside to the outside: each middleware wraps `app.wsgi_app`.
    if settings.is_enabled("fast_path"):
        app.wsgi_app = FastPath(app, service)  # type: ignore[method-assign]
    import_owner_file("custom").init_app(app)
    for middleware in reversed(outer_middleware(app, service)):
        app.wsgi_app = middleware(app.wsgi_app)  # type: ignore[method-assign]
    return app


def outer_middleware(app: Flask, service: Service) -> list[Callable[[WsgiApp], WsgiApp]]:
    """Return the middleware in the order in which a request meets it.

    After these, a request meets the owner's middleware, the fast path, and Flask.
    """
    from app.rest.middleware import ApiKeyMiddleware, CallMiddleware, CorsMiddleware

    settings = service.settings
    middleware: list[Callable[[WsgiApp], WsgiApp]] = [
        partial(CallMiddleware, observer_queue=service.observer_queue)
    ]
    if settings.cors_origins:
        middleware.append(partial(CorsMiddleware, origins=settings.cors_origins))
    if settings.api_keys_file:
        middleware.append(partial(ApiKeyMiddleware, app=app, keys_file=settings.api_keys_file))
    return middleware


def register_pages(app: Flask, settings: Settings) -> None:
    """Register the blueprints of app/ui/, which is missing in projects with model_page=no."""
    if not find_spec("app.ui"):
        return
    from app.ui.openapi_routes import openapi, swagger
    from app.ui.page import page

    app.register_blueprint(openapi)
    if settings.ui_enabled:
        app.register_blueprint(swagger)
        app.register_blueprint(page)
