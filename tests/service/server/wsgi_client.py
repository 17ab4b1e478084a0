"""Requests to the WSGI applications in applications.py."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.processes import Running
from tests.kit.standalone import (
    Reply,
    exchange,
    read_replies,
)

APP = "tests.service.server.applications"


def request(
    target: str, *fields: str, method: str = "GET", version: str = "1.1", body: bytes = b""
) -> bytes:
    return (
        "\r\n".join([f"{method} {target} HTTP/{version}", "Host: x", *fields, "", ""]).encode(
            "latin-1"
        )
        + body
    )


def get(
    service: Running, target: str, *fields: str, method: str = "GET", version: str = "1.1"
) -> Reply:
    """Return the only response to a request without a body."""
    received = exchange(service.http_port, request(target, *fields, method=method, version=version))
    [reply] = read_replies(received, method)
    return reply


def read_seen(service: Running) -> list[dict[str, Any]]:
    return json.loads(get(service, "/seen").body)


def keeps_alive(service: Running, target: str, version: str = "1.1") -> bool:
    """Return whether a second request is served after one for `target`."""
    read_seen(service)
    fields = ["Connection: keep-alive"] if version == "1.0" else []
    exchange(service.http_port, request(target, *fields, version=version) + request("/second"))
    return any(each.get("uri") == "/second" for each in read_seen(service))
