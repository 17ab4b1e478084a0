"""Calls over REST: what the WSGI environ says about the request and its client."""

import re
import select
from functools import cached_property
from http import HTTPMethod
from typing import Any

from app.inference.call import Call, Headers

# Poll event for a connection that the client has closed, even with TLS or unread data. macOS has
# only POLLHUP.
CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)


class RestCall(Call):
    """A call over REST.

    `route` is the path or the pattern of a route of this service, without data from the client. It
    is empty as long as no route is known, and for unknown paths.
    """

    protocol = "rest"

    def __init__(self, environ: dict[str, Any]):
        get = environ.get
        super().__init__(
            "unknown",
            request_id=get("HTTP_X_REQUEST_ID"),
            traceparent=get("HTTP_TRACEPARENT", ""),
            tracestate=get("HTTP_TRACESTATE", ""),
            transport=environ,
        )
        self.route = ""
        self.path: str = get("PATH_INFO", "")
        if not self.path.isascii():  # WSGI decodes it as Latin-1
            self.path = self.path.encode("latin-1").decode("utf-8", "replace")
        self.method: str = get("REQUEST_METHOD", "")
        self.client_address = get("REMOTE_ADDR", "")

    @cached_property
    def headers(self) -> Headers:  # type: ignore[override]
        headers = Headers()
        for key, value in self._transport.items():
            if key.startswith("HTTP_") or key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                name = key.removeprefix("HTTP_").replace("_", "-").lower()
                headers.data[name] = value
        return headers

    def match(self, operation: str, route: str) -> None:
        """Record the operation and the route, when they are known."""
        self.operation = operation
        self.route = route

    def span_name(self) -> str:
        return f"{self.method} {self._span_route}"

    def span_attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "http.request.method": self.method,
            "http.route": self._span_route,
            "url.path": self.path,
        }
        if self.outcome.status:
            attributes["http.response.status_code"] = int(self.outcome.status)
        return attributes

    @property
    def _span_route(self) -> str:
        if not self.path.endswith("/infer"):
            return self.route
        if "/versions/" in self.path:
            return "/v2/models/{name}/versions/{version}/infer"
        return "/v2/models/{name}/infer"

    def log_message(self) -> str:
        return (
            f"{self._log_method} {self.route or 'unknown'} {self.outcome.status or 'no response'}"
        )

    def log_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"http_method": self._log_method}
        if self.route:
            fields["path"] = self.route
        if self.outcome.status:
            fields["http_status"] = int(self.outcome.status)
        fields["client_address"] = self.client_address
        return fields

    @property
    def _log_method(self) -> str:
        """The method, or `_OTHER` for an unknown one, because a client can send any text.

        Only known methods have a route.
        """
        if self.route or self.method in HTTPMethod.__members__:
            return self.method
        return "_OTHER"

    @property
    def _connection(self) -> Any:
        """A socket, or a connection of app.server, or None in tests."""
        return self._transport.get("gunicorn.socket")

    def is_active(self) -> bool:
        connection = self._connection
        if connection is None:
            return True
        watch = select.poll()
        try:
            watch.register(connection, CLOSED)
        except ValueError:  # the connection is closed
            return False
        return not watch.poll(0)

    def release_thread(self) -> None:
        # Only connections of app.server can do this.
        release = getattr(self._connection, "release_thread", None)
        if release is not None:
            release()


def route_pattern(rule: Any) -> str:
    """Return the pattern of a Flask route in the form /v2/models/{name}."""
    return re.sub(r"<(?:.*?:)?(\w+)>", r"{\1}", rule.rule)
