"""The outermost WSGI application: a call for every request of REST, and its id for whoever asked."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable
from typing import Any

from app.call import INFER, Call, serving
from app.journal import Journal

CALL = "service.call"  # where the environ of a request has it
REQUEST_ID = "X-Request-Id"
# The method by the endpoint of Flask; a route of the user's own is called as its endpoint.
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
# What the system tells of a connection that its client has ended, whatever was sent before, over TLS too; macOS does so
# by another name.
LEFT = getattr(select, "POLLRDHUP", select.POLLHUP)


class RestCall(Call):
    """A call by HTTP; who waits is known as far as the connection tells."""

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
            watch.register(self.connection, LEFT)
            return not watch.poll(0)
        except ValueError:  # it is closed
            return False

    def release_thread(self) -> None:
        if release := getattr(self.connection, "release_thread", None):  # only connections of our own worker have it
            release()


class Recorder:
    """`wsgi`, each of whose answers is put into the journal."""

    def __init__(self, wsgi: Callable[..., Iterable[bytes]], journal: Journal):
        self.wsgi, self.journal = wsgi, journal

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ[CALL] = call = RestCall(environ)
        serving.set((call,))

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            call.status = status[:3]
            if call.method is UNKNOWN:  # here, since Flask lets go of the request before it returns
                call.method = method_of(environ)
            if not call.sent:  # else it is known without compression
                call.sent = next((int(value) for name, value in headers if name == "Content-Length"), 0)
            headers.append((REQUEST_ID, call.id))
            return start_response(status, headers, *error)

        try:
            return self.wsgi(environ, start)
        finally:
            if call.is_unread():
                call.status = "499"
            call.received = call.received or length_of(environ)
            call.connection = None
            self.journal.add(call)


def length_of(environ: dict[str, Any]) -> int:
    """The size of a body that was not read, as its client says."""
    said = environ.get("CONTENT_LENGTH") or ""
    return int(said) if said.isdigit() else 0


def method_of(environ: dict[str, Any]) -> str:
    """What Flask found that the request asks for."""
    endpoint = getattr(environ.get("werkzeug.request"), "endpoint", None)
    return METHODS.get(endpoint, endpoint) if endpoint else UNKNOWN
