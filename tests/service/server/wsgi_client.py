"""Requests to the WSGI applications in applications.py."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.processes import Running
from tests.kit.standalone import Reply, exchange, read_replies

APP = "tests.service.server.applications"


def request(
    target: str, *fields: str, method: str = "GET", version: str = "1.1", body: bytes = b""
) -> bytes:
    """Return the bytes of a request with header fields after Host."""
    lines = [f"{method} {target} HTTP/{version}", "Host: x", *fields, "", ""]
    head = "\r\n".join(lines).encode("latin-1")
    return head + body


def get(
    service: Running, target: str, *fields: str, method: str = "GET", version: str = "1.1"
) -> Reply:
    """Return the only response to a request without a body."""
    sent = request(target, *fields, method=method, version=version)
    received = exchange(service.http_port, sent)
    (reply,) = read_replies(received, method)
    return reply


def read_seen(service: Running) -> list[dict[str, Any]]:
    """Return the requests that the application has seen since the last call."""
    reply = get(service, "/seen")
    return json.loads(reply.body)


def keeps_alive(service: Running, target: str, version: str = "1.1") -> bool:
    """Return whether a second request is served after one for `target`."""
    read_seen(service)
    fields = []
    if version == "1.0":
        fields.append("Connection: keep-alive")
    first = request(target, *fields, version=version)
    second = request("/second")
    exchange(service.http_port, first + second)

    uris = [seen_request.get("uri") for seen_request in read_seen(service)]
    return "/second" in uris
