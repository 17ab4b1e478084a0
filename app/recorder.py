"""The outermost WSGI application: it creates the call of a request, returns its id and records its end."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable
from typing import Any

from app.call import INFER, Call, serving
from app.journal import Journal

CALL = "service.call"  # the call's key in the WSGI environ
REQUEST_ID = "X-Request-Id"
# The method by Flask's endpoint. A route that is not listed is recorded by its endpoint.
METHODS = {
    "rest.live": "ServerLive",
    "rest.ready": "ServerReady",
    "rest.model_ready": "ModelReady",
    "rest.server_metadata": "ServerMetadata",
    "rest.model_metadata": "ModelMetadata",
    "rest.model_config": "ModelConfig",
    "rest.repository_index": "RepositoryIndex",
    "rest.infer": INFER,
    "monitoring.show_metrics": "Metrics",
    "page.show_page": "Page",
    "page.show_file": "PageFile",
}
UNKNOWN = "unknown"
# The event of a connection that the client has closed, also over TLS and with unread data. macOS has another name.
CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)


class RestCall(Call):
    """A call over HTTP."""

    protocol = "rest"

    def __init__(self, environ: dict[str, Any]):
        get = environ.get
        super().__init__(UNKNOWN, get("HTTP_X_REQUEST_ID"), get("HTTP_TRACEPARENT"))
        if self.traceparent:
            self.tracestate = get("HTTP_TRACESTATE")
        self.path: str = get("PATH_INFO", "")  # as WSGI spells it
        self.connection: Any = get("gunicorn.socket")

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
    """WSGI middleware that adds each request to the journal when `wsgi` has returned the response."""

    def __init__(self, wsgi: Callable[..., Iterable[bytes]], journal: Journal):
        self.wsgi, self.journal = wsgi, journal

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ[CALL] = call = RestCall(environ)
        serving.set((call,))

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            call.status = status[:3]
            if call.method is UNKNOWN:  # here, because Flask releases the request before it returns
                endpoint = getattr(environ.get("werkzeug.request"), "endpoint", None) or UNKNOWN
                call.method = METHODS.get(endpoint, endpoint)
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
            self.journal.add(call)
