"""Fast path for infer requests, without Flask's dispatch, which takes longer than a small model.

It bypasses Flask only if Flask would do nothing but call the blueprint's view: if the application
has no hooks, no signal receivers, and no routes and views of its own for the infer paths. This is
decided after the first request, because Flask accepts such extensions until then. Flask's error
handlers handle all errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Flask, signals

from app.rest.middleware import record_route, respond_with_flask
from app.rest.routes import Inference, infer

if TYPE_CHECKING:
    from app.service import Service

ENDPOINT = "rest.infer"
# Methods of Flask that dispatch a request. A subclass or an instrumentation may replace them.
DISPATCH = (
    "wsgi_app",
    "full_dispatch_request",
    "dispatch_request",
    "preprocess_request",
    "process_response",
)


class Target(NamedTuple):
    """Model name and version of an infer path."""

    name: str
    version: str | None


class FastPath:
    """WSGI middleware that handles infer requests for the served model, and passes on others."""

    def __init__(self, app: Flask, service: Service):
        self._infer = Inference(service.pipeline, service.settings)
        self._app = app
        self.wsgi = app.wsgi_app
        name = service.info.metadata.name
        version = service.info.metadata.version
        self._paths = {
            f"/v2/models/{name}/infer": Target(name, None),
            f"/v2/models/{name}/versions/{version}/infer": Target(name, version),
        }
        # WSGI decodes PATH_INFO as Latin-1.
        self._targets = {
            path.encode().decode("latin-1"): target for path, target in self._paths.items()
        }
        self.bypasses_flask: bool | None = None  # not decided before the first request

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.bypasses_flask is None:
            response = self.wsgi(environ, start_response)
            self.bypasses_flask = not has_extensions(self._app, self._paths)
            return response

        target = self._target_of(environ) if self.bypasses_flask else None
        if target is None:
            return self.wsgi(environ, start_response)
        try:
            body, headers = self._infer(environ, target.name, target.version)
        except Exception as error:
            return respond_with_flask(self._app, error, environ, start_response)
        start_response("200 OK", [*headers.items(), ("Content-Length", str(len(body)))])
        return [body]

    def _target_of(self, environ: dict[str, Any]) -> Target | None:
        """Return the target of an infer request for the served model.

        None: another request.
        """
        if environ["REQUEST_METHOD"] != "POST":
            return None
        if "werkzeug.debug.preserve_context" in environ:  # Flask's test client as a `with` block
            return None
        return self._targets.get(environ["PATH_INFO"])


def has_extensions(app: Flask, paths: Iterable[str]) -> bool:
    """Return True if `app` has anything for `paths` that the fast path would bypass."""
    return (
        _has_hooks(app)
        or _has_signal_receivers()
        or _has_changed_methods(app)
        or _has_other_views(app, paths)
        or bool(app.config.get("TRUSTED_HOSTS"))
    )


def _has_hooks(app: Flask) -> bool:
    """Return True if functions run before or after each request, except record_route()."""
    hooks = (
        app.url_value_preprocessors,
        app.after_request_funcs,
        app.teardown_request_funcs,
        app.teardown_appcontext_funcs,
    )
    return any(hooks) or app.before_request_funcs != {None: [record_route]}


def _has_signal_receivers() -> bool:
    """Return True if a function receives a signal of Flask, such as request_started."""
    for value in vars(signals).values():
        receivers = getattr(value, "receivers", None)  # the module also contains other values
        if receivers:
            return True
    return False


def _has_changed_methods(app: Flask) -> bool:
    """Return True if a subclass or instrumentation replaces a method that dispatches requests."""
    for name in DISPATCH:
        method = getattr(type(app), name)
        is_from_flask = method.__module__ == "flask.app"
        is_wrapped = hasattr(method, "__wrapped__")
        if is_wrapped or not is_from_flask:
            return True
    return False


def _has_other_views(app: Flask, paths: Iterable[str]) -> bool:
    """Return True if a path has another view than infer()."""
    routes = app.url_map.bind("")
    for path in paths:
        endpoint, _ = routes.match(path, "POST")
        if endpoint != ENDPOINT:
            return True
    return app.view_functions[ENDPOINT] is not infer
