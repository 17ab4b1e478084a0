"""WSGI middleware for calls, CORS and API keys, from the outermost to the innermost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from flask import Flask, current_app, request

from app.config.api_keys import read_keys
from app.inference.call import Outcome, current_calls
from app.observability.observer_queue import ObserverQueue
from app.protocol.errors import Unauthenticated
from app.rest.rest_call import RestCall, route_pattern

WsgiApp = Callable[..., Iterable[bytes]]

CALL_KEY = "service.call"  # the key of a RestCall in the WSGI environ
REQUEST_ID = "X-Request-Id"
PREFLIGHT_MAX_AGE_SECONDS = "7200"  # Chromium's maximum
# Paths that do not require an API key: probes and metrics.
OPEN_PATHS = re.compile(
    r"/v2/health/(live|ready)/?|/v2/models/[^/]+(/versions/[^/]+)?/ready/?|/metrics/?"
)


class CallMiddleware:
    """Outermost middleware: creates the call of a request, and records its end.

    It sets the response header X-Request-Id, and the response headers of predict().
    """

    def __init__(self, wsgi: WsgiApp, observer_queue: ObserverQueue):
        self.wsgi = wsgi
        self._observer_queue = observer_queue

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        call = RestCall(environ)
        environ[CALL_KEY] = call
        current_calls.set((call,))
        # None until the response starts, or if its size is unknown.
        content_length: int | None = None

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            nonlocal content_length
            call.outcome.set_status(status[:3])
            content_length = _content_length(headers)
            added = [(REQUEST_ID, call.id), *call.additions.headers.items()]
            return start_response(status, [*headers, *added], *error)

        try:
            body = self.wsgi(environ, start)
        except BaseException as error:
            call.outcome.fail(type(error), _internal_error_text(error))
            self._record_end(call, environ, 0)
            raise
        # With a Content-Length, the call ends here: Flask and FastPath build such a response in one
        # piece. Only files, and streams whose length the owner knows, are transferred later.
        if content_length is not None:
            self._record_end(call, environ, content_length)
            return body
        # Without it, the body is a generator, and the call ends when the server closes it. If the
        # application itself is a generator, it calls start() with the first part.
        return _LazyBody(
            body, call.outcome, on_close=lambda size: self._record_end(call, environ, size)
        )

    def _record_end(self, call: RestCall, environ: dict[str, Any], transferred_bytes: int) -> None:
        """Complete the outcome, and pass the call to the observers."""
        outcome = call.outcome
        # The infer route has recorded the sizes of its bodies before compression. For other routes,
        # which record none, the sizes are those of the transfer.
        if outcome.response_bytes == 0:
            outcome.set_response_bytes(transferred_bytes)
        if outcome.request_bytes == 0:
            outcome.set_request_bytes(_request_length(environ))

        if call.is_abandoned():
            outcome.set_status("499")  # as in nginx: the client has closed the connection
        self._observer_queue.add(call)
        # Log records of this thread no longer belong to the call.
        current_calls.set(())


class _LazyBody:
    """The body of a response whose size and success are not known before its end.

    on_close: called with the size when the server closes the body
    """

    def __init__(self, body: Iterable[bytes], outcome: Outcome, *, on_close: Callable[[int], None]):
        self._body = body
        self._iterator = iter(body)
        self._outcome = outcome
        self._on_close = on_close
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            part = next(self._iterator)
        except StopIteration:
            raise
        except BaseException as error:
            self._outcome.fail(type(error), _internal_error_text(error))
            raise
        self._size += len(part)
        return part

    def close(self) -> None:
        """Close the body, and report its size, even if closing it fails."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._on_close(self._size)


def _internal_error_text(error: BaseException) -> str:
    return f"Internal error: {type(error).__name__}."


def _request_length(environ: dict[str, Any]) -> int:
    """Return the Content-Length of the request, or 0."""
    length = environ.get("CONTENT_LENGTH") or ""
    return int(length) if length.isdecimal() else 0


def _content_length(headers: list[tuple[str, str]]) -> int | None:
    for name, value in headers:
        if name == "Content-Length":
            return int(value)
    return None


def record_route() -> None:
    """Record operation and route of the request in its call, for logs and metrics.

    Flask calls this for each request that it dispatches. The route is the path if that names the
    served model. Otherwise it is the route's pattern, because logs and metrics must not contain
    names that a client has made up.
    """
    call = request.environ.get(CALL_KEY)
    if call is None or call.route:  # without CallMiddleware, or the infer route has recorded it
        return
    if request.url_rule is None or request.endpoint is None:  # an unknown path
        return

    model = current_app.extensions["service"].info.metadata
    route = call.path
    for value in (request.view_args or {}).values():
        if value not in (model.name, model.version):
            route = route_pattern(request.url_rule)
    call.match(request.endpoint.removeprefix("rest."), route)


class CorsMiddleware:
    """Lets pages of `origins` read responses, including errors.

    It responds to preflight requests itself, without a key.
    """

    def __init__(self, wsgi: WsgiApp, origins: tuple[str, ...]):
        self.wsgi = wsgi
        self._origins = origins

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        headers = []
        if "*" not in self._origins:
            headers.append(("Vary", "Origin"))
        origin = self._allowed_origin(environ)
        if origin is not None:  # otherwise, the browser does not show the response to the page
            headers.append(("Access-Control-Allow-Origin", origin))
            headers.append(("Access-Control-Expose-Headers", "*"))
            if _is_preflight(environ):
                start_response("204 No Content", [*headers, *_preflight_headers(environ)])
                return []

        def start(status: str, app_headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*app_headers, *headers], *error)

        return self.wsgi(environ, start)

    def _allowed_origin(self, environ: dict[str, Any]) -> str | None:
        if "*" in self._origins:
            return "*"
        origin = environ.get("HTTP_ORIGIN", "")
        return origin if origin in self._origins else None


def _is_preflight(environ: dict[str, Any]) -> bool:
    is_options: bool = environ["REQUEST_METHOD"] == "OPTIONS"
    return is_options and bool(environ.get("HTTP_ACCESS_CONTROL_REQUEST_METHOD"))


def _preflight_headers(environ: dict[str, Any]) -> list[tuple[str, str]]:
    """Allow every method and header that the browser asks for. API keys protect the service."""
    return [
        ("Access-Control-Allow-Methods", environ["HTTP_ACCESS_CONTROL_REQUEST_METHOD"]),
        ("Access-Control-Allow-Headers", environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")),
        ("Access-Control-Max-Age", PREFLIGHT_MAX_AGE_SECONDS),
    ]


class ApiKeyMiddleware:
    """Rejects requests without a valid API key, also for unknown paths, without their bodies."""

    def __init__(self, wsgi: WsgiApp, app: Flask, keys_file: Path):
        self.wsgi = wsgi
        self._app = app
        self._keys = read_keys(keys_file)
        app.extensions["service"].add_head_check(self._accepts_head)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        try:
            self._check(environ)
        except Unauthenticated as error:
            # Checked last, because most requests have a key.
            if not OPEN_PATHS.fullmatch(environ["PATH_INFO"]):
                return respond_with_flask(self._app, error, environ, start_response)
        return self.wsgi(environ, start_response)

    def _check(self, environ: dict[str, Any]) -> None:
        """Raise Unauthenticated unless the request has a valid key."""
        authorization = environ.get("HTTP_AUTHORIZATION")
        if is_cross_site(environ):
            authorization = None
        self._keys.check(authorization, environ.get("HTTP_X_API_KEY"))

    def _accepts_head(self, environ: dict[str, Any]) -> bool:
        """Return True if the request has a valid key, which is the only reason to read its body.

        The open paths need no body.
        """
        try:
            self._check(environ)
        except Unauthenticated:
            return False
        return True


def is_cross_site(environ: dict[str, Any]) -> bool:
    """Return True if a page of another site made the browser send the user's key (HTTP Basic).

    The page cannot read the response, but its requests would use the model. GET and HEAD do not use
    it. Subdomains (`same-site`) count as other sites. Browsers send Sec-Fetch-Site only over TLS,
    but Origin with every POST.
    """
    is_basic = environ.get("HTTP_AUTHORIZATION", "").lower().startswith("basic ")
    if environ["REQUEST_METHOD"] in ("GET", "HEAD") or not is_basic:
        return False
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site:
        return site not in ("same-origin", "none")
    origin = environ.get("HTTP_ORIGIN")
    return origin is not None and origin.partition("://")[2] != environ.get("HTTP_HOST")


def respond_with_flask(
    app: Flask, error: Exception, environ: dict[str, Any], start_response: Any
) -> Iterable[bytes]:
    """Respond with the error handlers of `app`, for a request that Flask does not dispatch."""
    with app.request_context(environ):
        record_route()
        response = app.make_response(app.handle_user_exception(error))
        return response(environ, start_response)
