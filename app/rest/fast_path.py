"""Fast path for infer requests. It bypasses Flask's dispatch and marshmallow, which take longer than a small model.

It applies only if Flask would do nothing but call the blueprint's view. This is decided after the first request,
because Flask accepts hooks and routes until then. Flask's error handlers handle all errors.
"""

from collections.abc import Iterable
from typing import Any

from flask import Flask, signals

from app.rest.fast_validation import validate_fast
from app.rest.middleware import respond_with_flask
from app.rest.routes import Inference, Service, infer
from app.rest.schemas import validate_request

ENDPOINT = "rest.infer"
DISPATCH = (
    "wsgi_app",
    "full_dispatch_request",
    "dispatch_request",
    "preprocess_request",
    "process_response",
)


class FastPath:
    """WSGI middleware that handles infer requests for the served model. It passes all other requests to `app`."""

    def __init__(self, app: Flask, service: Service):
        is_slow = "fast_validation" in service.settings.disable_optimizations
        validate = validate_request if is_slow else validate_fast
        self.infer = Inference(service.plane, service.settings, validate)
        self.app, self.flask = app, app.wsgi_app
        served = service.plane.metadata()
        path = f"/v2/models/{served.name}"
        self.versions = {
            f"{path}/infer": None,
            f"{path}/versions/{served.version}/infer": served.version,
        }
        # WSGI decodes PATH_INFO as Latin-1.
        self.targets = {
            path.encode().decode("latin-1"): (served.name, each)
            for path, each in self.versions.items()
        }
        self.can_bypass_flask: bool | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.can_bypass_flask is None:
            response = self.flask(environ, start_response)
            self.can_bypass_flask = not has_extensions(self.app, self.versions)
            return response
        target = self.targets.get(environ["PATH_INFO"]) if self.can_bypass_flask else None
        if (
            target is None
            or environ["REQUEST_METHOD"] != "POST"
            or "werkzeug.debug.preserve_context" in environ
        ):
            return self.flask(environ, start_response)
        try:
            body, headers = self.infer(environ, *target)
        except Exception as error:
            return respond_with_flask(self.app, error, environ, start_response)
        start_response("200 OK", [*headers.items(), ("Content-Length", str(len(body)))])
        return [body]


def has_extensions(app: Flask, paths: Iterable[str]) -> bool:
    """Return True if `app` has hooks, signal receivers, views or routes for `paths` that the fast path would bypass."""
    before = app.before_request_funcs, app.url_value_preprocessors
    after = app.after_request_funcs, app.teardown_request_funcs, app.teardown_appcontext_funcs
    methods = [getattr(type(app), name) for name in DISPATCH]
    has_listeners = any(getattr(each, "receivers", None) for each in vars(signals).values())
    is_traced = any(
        each.__module__ != "flask.app" or hasattr(each, "__wrapped__") for each in methods
    )
    if any((*before, *after)) or has_listeners or is_traced:
        return True
    is_routed = all(app.url_map.bind("").match(path, "POST")[0] == ENDPOINT for path in paths)
    has_own_view = app.view_functions[ENDPOINT] is infer
    return not (is_routed and has_own_view) or bool(app.config.get("TRUSTED_HOSTS"))
