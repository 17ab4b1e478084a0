"""The fast path for infer requests, without Flask's dispatch and marshmallow, which take longer than a small model.

It serves only requests for which Flask would do nothing but call the blueprint's view. This is decided once, after the
first request: until then, Flask accepts hooks and routes. Every error goes to Flask's error handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, signals
from flask.sessions import SecureCookieSessionInterface

from app.config import Settings
from app.dataplane import DataPlane
from app.datatypes import check_shape, datatype_of
from app.errors import InvalidInput
from app.middleware import refuse_by_flask
from app.rest import Inference, infer
from app.schemas import Json, check_parameters, check_text, load
from app.types import MAX_TENSORS

ENDPOINT = "rest.infer"
DISPATCH = ("wsgi_app", "full_dispatch_request", "dispatch_request", "preprocess_request", "process_response")


class FastPath:
    """A WSGI application in front of `app`, to which it leaves everything but infer requests of the served model."""

    def __init__(self, app: Flask, plane: DataPlane, settings: Settings):
        self.app, self.plane = app, plane
        is_checked_fast = "fast_validation" not in settings.disable_optimizations
        self.infer = Inference(plane, settings, load_fast if is_checked_fast else load)
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
        paths = {
            f"/v2/models/{served.name}/infer": None,
            f"/v2/models/{served.name}/versions/{served.version}/infer": served.version,
        }
        return {
            path.encode().decode("latin-1"): {"name": served.name, "version": version}
            for path, version in paths.items()
            if routes.match(path, "POST")[0] == ENDPOINT  # otherwise the owner has another route there
        }


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
        or any(getattr(each, "receivers", None) for each in vars(signals).values())
        or any(is_patched(app, name) for name in DISPATCH)
    )


def is_patched(app: Flask, name: str) -> bool:
    """Return whether a method is not Flask's own, as after a tracer wraps it, on the class or on the object."""
    method = getattr(type(app), name)
    is_own = method.__module__ == "flask.app" and not hasattr(method, "__wrapped__")
    return not is_own or (name != "wsgi_app" and name in vars(app))


def load_fast(payload: Any) -> Json:
    """Return the same as marshmallow's `load`, in a fraction of the time. If a check fails, call `load`."""
    try:
        inputs, outputs, request_id = payload["inputs"], payload.get("outputs"), payload.get("id")
        outputs = [] if outputs is None else outputs
        if type(inputs) is type(outputs) is list and max(len(inputs), len(outputs)) <= MAX_TENSORS:
            return {
                "id": None if request_id is None else check_text(request_id),
                "parameters": check_parameters(payload.get("parameters")),
                "inputs": [load_input(each) for each in inputs],
                "outputs": [load_output(each) for each in outputs],
            }
    except (InvalidInput, LookupError, TypeError, AttributeError):
        pass
    return load(payload)


def load_input(value: Any) -> Json:
    return {
        "name": check_text(value["name"]),
        "shape": check_shape(value["shape"]),
        "datatype": datatype_of(value["datatype"]),
        "data": value.get("data"),
        "parameters": check_parameters(value.get("parameters")),
    }


def load_output(value: Any) -> Json:
    return {"name": check_text(value["name"]), "parameters": check_parameters(value.get("parameters"))}
