"""A server that the conformance suite must find wanting: our own, with a few things put wrong."""

from __future__ import annotations

from typing import Any

from flask import Flask

from app.envelope import HEADER_LENGTH
from conformance.servers import ours


def create() -> Flask:
    """Malformed requests are a 500, and binary tensors are neither listed nor told of."""
    app = ours.create()
    answer = app.wsgi_app

    def wsgi_app(environ: dict[str, Any], start_response: Any) -> Any:
        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            kept = [header for header in headers if header[0] != HEADER_LENGTH]
            return start_response(status.replace("400", "500"), kept, *error)

        return answer(environ, start)

    app.wsgi_app = wsgi_app  # type: ignore[method-assign]
    app.extensions["data_plane"].extensions = []
    return app
