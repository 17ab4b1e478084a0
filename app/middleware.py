"""The WSGI applications around Flask: the recorder of calls, and the guard with the API keys."""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from app.call import Call, serving
from app.errors import Unauthenticated
from app.journal import Journal
from app.keys import Keys

CALL = "service.call"  # the call's key in the WSGI environ
REQUEST_ID = "X-Request-Id"
UNKNOWN = "unknown"
# The event of a connection that the client has closed, also over TLS and with unread data. macOS has another name.
CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)
# The paths that need no key: probes and metrics.
FREE = re.compile(r"/v2/health/(live|ready)/?|/v2/models/[^/]+(/versions/[^/]+)?/ready/?|/metrics/?")


class RestCall(Call):
    """A call over HTTP."""

    protocol = "rest"

    def __init__(self, environ: dict[str, Any]):
        get = environ.get
        super().__init__(UNKNOWN, get("HTTP_X_REQUEST_ID"), get("HTTP_TRACEPARENT", ""), get("HTTP_TRACESTATE", ""))
        self.path: str = get("PATH_INFO", "")  # as WSGI spells it
        self.connection: Any = get("gunicorn.socket")

    def span(self) -> tuple[str, dict[str, Any]]:
        path = self.path.encode("latin-1").decode("utf-8", "replace")
        route = "/v2/models/{name}" + ("/versions/{version}" if "/versions/" in path else "") + "/infer"
        attributes: dict[str, Any] = {"http.request.method": "POST", "http.route": route, "url.path": path}
        if self.status:
            attributes["http.response.status_code"] = int(self.status)
        return f"POST {route}", attributes

    def is_active(self) -> bool:
        if self.connection is None:
            return True
        watch = select.poll()
        try:
            watch.register(self.connection, CLOSED)
            return not watch.poll(0)
        except ValueError:  # it is closed
            return False

    def release_thread(self) -> None:
        if release := getattr(self.connection, "release_thread", None):  # only connections of our own worker have it
            release()


class Recorder:
    """The outermost application. It creates a request's call, returns its id and adds it to the journal at the end."""

    def __init__(self, wsgi: Callable[..., Iterable[bytes]], journal: Journal):
        self.wsgi, self.journal = wsgi, journal

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ[CALL] = call = RestCall(environ)
        serving.set((call,))

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            call.status = status[:3]
            if call.operation is UNKNOWN:  # here, because Flask releases the request before it returns
                endpoint = getattr(environ.get("werkzeug.request"), "endpoint", None) or UNKNOWN
                blueprint, _, view = endpoint.partition(".")
                call.operation = view if blueprint == "rest" else endpoint
            if not call.sent:  # otherwise it is the size before compression
                call.sent = next((int(value) for name, value in headers if name == "Content-Length"), 0)
            headers.append((REQUEST_ID, call.id))
            return start_response(status, headers, *error)

        try:
            return self.wsgi(environ, start)
        finally:
            if call.is_unread():
                call.status = "499"
            length = environ.get("CONTENT_LENGTH") or ""
            if not call.received and length.isdigit():  # a body that was not read
                call.received = int(length)
            call.connection = None
            serving.set(())  # the thread logs for others, too
            self.journal.add(call)


class Guard:
    """Rejects requests without a valid key, on unknown paths too, before it reads the body."""

    def __init__(self, app: Flask, keys: Keys):
        self.app, self.keys, self.wsgi = app, keys, app.wsgi_app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        authorization = None if is_forged(environ) else environ.get("HTTP_AUTHORIZATION")
        try:
            self.keys.check(authorization, environ.get("HTTP_X_API_KEY"))
        except Unauthenticated as error:
            if not FREE.fullmatch(environ["PATH_INFO"]):
                return refuse_by_flask(self.app, error, environ, start_response)
        return self.wsgi(environ, start_response)


def is_forged(environ: dict[str, Any]) -> bool:
    """Return whether a page of another site made a browser send the key that its user once entered.

    Such a page cannot read the response, but could keep the model busy. Browsers send Sec-Fetch-Site over TLS, and
    Origin with every POST.
    """
    is_basic = environ.get("HTTP_AUTHORIZATION", "").lower().startswith("basic ")
    if environ["REQUEST_METHOD"] in ("GET", "HEAD") or not is_basic:
        return False
    if site := environ.get("HTTP_SEC_FETCH_SITE"):
        return site not in ("same-origin", "none")
    origin = environ.get("HTTP_ORIGIN")
    return origin is not None and origin.partition("://")[2] != environ.get("HTTP_HOST")


def refuse_by_flask(app: Flask, error: Exception, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Respond with the error handlers of `app`, for a WSGI application in front of it.

    The response starts inside the request context, where the recorder finds the endpoint.
    """
    with app.request_context(environ):
        response = app.make_response(app.handle_user_exception(error))
        return response(environ, start_response)
