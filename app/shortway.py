"""The fast path for infer requests: past Flask's dispatch, which takes longer than a small model.

It serves only requests for which Flask would do nothing but call the blueprint's view. This is decided once, after the
first request: until then, Flask accepts hooks and routes. Every error goes to Flask's error handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from flask import Flask, signals
from flask.sessions import SecureCookieSessionInterface
from werkzeug.exceptions import HTTPException

from app.config import Settings
from app.dataplane import DataPlane
from app.rest import Inference, infer, refuse_by_flask
from app.schemas import load, load_fast

ENDPOINT = "rest.infer"
SIGNALS = (
    signals.request_started,
    signals.request_finished,
    signals.request_tearing_down,
    signals.appcontext_pushed,
    signals.appcontext_popped,
    signals.appcontext_tearing_down,
)
DISPATCH = ("wsgi_app", "full_dispatch_request", "dispatch_request", "preprocess_request", "process_response")


class FastPath:
    """A WSGI application in front of `app`, to which it leaves everything but infer requests of the served model."""

    def __init__(self, app: Flask, plane: DataPlane, settings: Settings):
        is_off = "fast_validation" in settings.disable_optimizations
        self.app, self.plane = app, plane
        self.infer = Inference(plane, settings, load if is_off else load_fast)
        self.flask: Callable[..., Iterable[bytes]] = app.wsgi_app
        self.paths: dict[str, dict[str, Any]] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.paths is None:
            response = self.flask(environ, start_response)
            self.paths = {} if is_extended(self.app) else self.find_paths()
            return response
        target = self.paths.get(environ["PATH_INFO"])
        if target is None or environ["REQUEST_METHOD"] != "POST" or "werkzeug.debug.preserve_context" in environ:
            return self.flask(environ, start_response)
        try:
            body, headers = self.infer(environ, **target)
        except Exception as error:
            return refuse_by_flask(self.app, error, environ, start_response)
        start_response("200 OK", [*headers.items(), ("Content-Length", str(len(body)))])
        return [body]

    def find_paths(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of the view by the paths of the served model, in the form of PATH_INFO."""
        served, routes = self.plane.metadata(), self.app.url_map.bind("")
        found = {}
        for arguments in ({"name": served.name}, {"name": served.name, "version": served.version}):
            path = unquote(routes.build(ENDPOINT, arguments))
            try:
                if routes.match(path, "POST") == (ENDPOINT, arguments):
                    found[path.encode().decode("latin-1")] = {"version": None, **arguments}
            except HTTPException:  # a route of the owner redirects
                continue
        return found


def is_extended(app: Flask) -> bool:
    """Return whether the application has hooks, views or listeners that the fast path would skip."""
    return bool(
        app.before_request_funcs
        or app.after_request_funcs
        or app.teardown_request_funcs
        or app.teardown_appcontext_funcs
        or app.url_value_preprocessors
        or app.view_functions.get(ENDPOINT) is not infer
        or type(app.session_interface) is not SecureCookieSessionInterface
        or app.config.get("TRUSTED_HOSTS")
        or any(signal.receivers for signal in SIGNALS)
        or any(is_patched(app, name) for name in DISPATCH)
    )


def is_patched(app: Flask, name: str) -> bool:
    """Return whether a method is not Flask's own, as after a tracer wraps it, on the class or on the object."""
    method = getattr(type(app), name)
    is_own = method.__module__ == "flask.app" and not hasattr(method, "__wrapped__")
    return not is_own or (name != "wsgi_app" and name in vars(app))
