"""WSGI middleware for request contexts, CORS and API keys."""

import re
import select
from collections.abc import Callable, Iterable
from functools import cached_property
from http import HTTPMethod
from pathlib import Path
from typing import Any

from flask import Flask

from app.config.api_keys import read_keys
from app.inference.data_plane import DataPlane
from app.inference.request_context import Headers, RequestContext, current_contexts
from app.protocol.errors import Unauthenticated

CONTEXT_KEY = "service.context"  # the key of a RestContext in the WSGI environ
REQUEST_ID = "X-Request-Id"
# Poll event for a connection that the client has closed, even with TLS or unread data. macOS has only POLLHUP.
CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)
# Paths that do not require an API key: probes and metrics.
OPEN_PATHS = re.compile(
    r"/v2/health/(live|ready)/?|/v2/models/[^/]+(/versions/[^/]+)?/ready/?|/metrics/?"
)


class RestContext(RequestContext):
    """Context of an HTTP request. `known_path` is its path or route pattern, without data from the client."""

    protocol, known_path = "rest", ""

    def __init__(self, environ: dict[str, Any]):
        get = environ.get
        super().__init__(
            "unknown",
            get("HTTP_X_REQUEST_ID"),
            get("HTTP_TRACEPARENT", ""),
            get("HTTP_TRACESTATE", ""),
        )
        path: str = get("PATH_INFO", "")  # in Latin-1, as WSGI requires
        self.path = path if path.isascii() else path.encode("latin-1").decode("utf-8", "replace")
        self.method, self.client_address = get("REQUEST_METHOD", ""), get("REMOTE_ADDR", "")
        self.connection: Any = get("gunicorn.socket")
        self.environ: Any = environ

    @cached_property
    def headers(self) -> Headers:  # type: ignore[override]
        headers = Headers()
        for name, value in self.environ.items():
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                headers.data[name.removeprefix("HTTP_").replace("_", "-").lower()] = value
        return headers

    def span(self) -> tuple[str, dict[str, Any]]:
        version = "/versions/{version}" if "/versions/" in self.path else ""
        route = (
            f"/v2/models/{{name}}{version}/infer"
            if self.path.endswith("/infer")
            else self.known_path
        )
        code = {"http.response.status_code": int(self.status)} if self.status else {}
        names = {"http.request.method": self.method, "http.route": route, "url.path": self.path}
        return f"{self.method} {route}", {**names, **code}

    def log_fields(self) -> tuple[str, dict[str, Any]]:
        method = (
            self.method if self.known_path or self.method in HTTPMethod.__members__ else "_OTHER"
        )
        path = {"path": self.known_path} if self.known_path else {}
        code = {"http_status": int(self.status)} if self.status else {}
        message = f"{method} {self.known_path or 'unknown'} {self.status or 'no response'}"
        return message, {
            "http_method": method,
            **path,
            **code,
            "client_address": self.client_address,
        }

    def is_active(self) -> bool:
        if self.connection is None:
            return True
        watch = select.poll()
        try:
            watch.register(self.connection, CLOSED)
            return not watch.poll(0)
        except ValueError:  # the connection is closed
            return False

    def release_thread(self) -> None:
        if release := getattr(
            self.connection, "release_thread", None
        ):  # only connections of app.server have it
            release()


def pattern_of(rule: Any) -> str:
    """Return the pattern of a Flask route, such as /v2/models/{name}."""
    return re.sub(r"<(?:.*?:)?(\w+)>", r"{\1}", rule.rule)


class ContextMiddleware:
    """Outermost middleware. It creates the request context, sets X-Request-Id, and queues the context for observers."""

    def __init__(self, wsgi: Callable[..., Iterable[bytes]], plane: DataPlane):
        self.wsgi, self.observer_queue, model = wsgi, plane.observer_queue, plane.metadata()
        self.served = model.name, model.version

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ[CONTEXT_KEY] = context = RestContext(environ)
        current_contexts.set((context,))

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            context.status = status[:3]
            request: Any = environ.get(
                "werkzeug.request"
            )  # Flask removes it before the call returns
            if not context.known_path and (
                rule := getattr(request, "url_rule", None)
            ):  # otherwise, a middleware has responded
                context.operation = request.endpoint.removeprefix("rest.")
                is_known = all(value in self.served for value in request.view_args.values())
                context.known_path = context.path if is_known else pattern_of(rule)
            if not context.sent:  # otherwise, it is the size before compression
                context.sent = next(
                    (int(value) for name, value in headers if name == "Content-Length"), 0
                )
            own = [(REQUEST_ID, context.id), *context.response_headers.items()]
            return start_response(status, [*headers, *own], *error)

        try:
            return self.wsgi(environ, start)
        finally:
            if context.is_abandoned():
                context.status = "499"
            length = environ.get("CONTENT_LENGTH") or ""
            if not context.received and length.isdigit():  # a body that was not read
                context.received = int(length)
            context.connection = context.environ = None
            current_contexts.set(())  # the thread also handles other requests
            self.observer_queue.add(context)


class CorsMiddleware:
    """Lets pages of `origins` read responses, including errors. It responds to preflight requests, without a key."""

    def __init__(self, wsgi: Callable[..., Iterable[bytes]], origins: tuple[str, ...]):
        self.wsgi, self.origins = wsgi, origins

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        origin = "*" if "*" in self.origins else environ.get("HTTP_ORIGIN", "")
        headers = [] if origin == "*" else [("Vary", "Origin")]
        if origin in self.origins:
            headers += [
                ("Access-Control-Allow-Origin", origin),
                ("Access-Control-Expose-Headers", "*"),
            ]
            method = environ.get("HTTP_ACCESS_CONTROL_REQUEST_METHOD")
            if method and environ["REQUEST_METHOD"] == "OPTIONS":  # a preflight request
                allowed = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")
                headers += [
                    ("Access-Control-Allow-Methods", method),
                    ("Access-Control-Allow-Headers", allowed),
                ]
                start_response(
                    "204 No Content", [*headers, ("Access-Control-Max-Age", "7200")]
                )  # Chromium's maximum
                return []
        return self.wsgi(
            environ, lambda status, sent, *error: start_response(status, [*sent, *headers], *error)
        )


class ApiKeyMiddleware:
    """Rejects requests without a valid API key before the body is read, also for unknown paths."""

    def __init__(self, app: Flask, keys_file: Path):
        self.app, self.keys, self.wsgi = app, read_keys(keys_file), app.wsgi_app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        authorization = None if is_cross_site(environ) else environ.get("HTTP_AUTHORIZATION")
        try:
            self.keys.check(authorization, environ.get("HTTP_X_API_KEY"))
        except Unauthenticated as error:
            if not OPEN_PATHS.fullmatch(environ["PATH_INFO"]):
                return respond_with_flask(self.app, error, environ, start_response)
        return self.wsgi(environ, start_response)


def is_cross_site(environ: dict[str, Any]) -> bool:
    """Return True if a page of another site made the browser send the user's key (HTTP Basic).

    The page cannot read the response, but its requests would use the model. Browsers send Sec-Fetch-Site over TLS, and
    Origin with every POST.
    """
    is_basic = environ.get("HTTP_AUTHORIZATION", "").lower().startswith("basic ")
    if environ["REQUEST_METHOD"] in ("GET", "HEAD") or not is_basic:
        return False
    if site := environ.get("HTTP_SEC_FETCH_SITE"):
        return site not in ("same-origin", "none")
    origin = environ.get("HTTP_ORIGIN")
    return origin is not None and origin.partition("://")[2] != environ.get("HTTP_HOST")


def respond_with_flask(
    app: Flask, error: Exception, environ: dict[str, Any], start_response: Any
) -> Iterable[bytes]:
    """Respond with the error handlers of `app`. ContextMiddleware reads the route from the request context."""
    with app.request_context(environ):
        response = app.make_response(app.handle_user_exception(error))
        return response(environ, start_response)
