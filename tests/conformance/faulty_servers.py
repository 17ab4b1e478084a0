"""Variants of our server: with faults that the conformance suite must detect, or without optional members."""

from __future__ import annotations

import io
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from app.inference.model_info import ModelInfo
from app.protocol.http_body import HEADER_LENGTH
from oip_conformance.model import INPUTS, NAME, OUTPUTS
from tests import conformance_model

# The trigger of a fault, and the line that the server prints when it receives it.
TRIGGER = b'"datatype": "fp32"'
TRIGGER_LINE = b"it is my turn\n"


def wrap_application(
    handle: Callable[[Callable, dict[str, Any], Callable], Iterable[bytes]],
) -> Flask:
    """Return our service with each request passed to `handle`, together with the original application."""
    app = conformance_model.create_service()
    original = app.wsgi_app
    app.wsgi_app = lambda environ, start: handle(original, environ, start)  # type: ignore[method-assign]
    return app


def faulty_server() -> Flask:
    """Return a server that responds 500 to malformed or gzip requests, and does not support binary tensors."""

    def handle(
        original: Callable, environ: dict[str, Any], start_response: Callable
    ) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            kept = [header for header in headers if header[0] != HEADER_LENGTH]
            return start_response(status.replace("400", "500"), kept, *error)

        if environ.get("HTTP_CONTENT_ENCODING") == "gzip":
            environ["HTTP_CONTENT_ENCODING"] = "deflate"  # the body is not in this coding
        return original(environ, start)

    app = wrap_application(handle)
    info = app.extensions["service"].info
    info.server_metadata = lambda: {**ModelInfo.server_metadata(info), "extensions": []}
    return app


def minimal_metadata_server() -> Flask:
    """Return a server without the optional members of the model metadata, on both transports."""
    app = conformance_model.create_service()
    metadata = {"name": NAME, "platform": ""}
    for member, tensors in (("inputs", INPUTS), ("outputs", OUTPUTS)):
        metadata[member] = [
            {"name": name, "datatype": kind, "shape": shape} for name, kind, shape in tensors
        ]
    app.extensions["service"].info.model_metadata = lambda name, version: dict(metadata)
    return app


def fixed_response_server(path: str, text: str) -> Flask:
    """Return a server that responds to GET `path` with `text`."""

    def handle(original: Callable, environ: dict[str, Any], start: Callable) -> Iterable[bytes]:
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"].rstrip("/")) != ("GET", path):
            return original(environ, start)
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
        return [text.encode()]

    return wrap_application(handle)


def replaced_text_server(replacements: dict[bytes, bytes]) -> Flask:
    """Return a server whose response bodies are changed: each pattern is replaced with its value."""

    def handle(
        original: Callable, environ: dict[str, Any], start_response: Callable
    ) -> Iterable[bytes]:
        head: list[Any] = []
        body = b"".join(original(environ, lambda *arguments: head.extend(arguments)))
        for pattern, text in replacements.items():
            body = re.sub(pattern, text, body)

        status, headers = head
        kept = [header for header in headers if header[0] != "Content-Length"]
        start_response(status, [*kept, ("Content-Length", str(len(body)))])
        return [body]

    return wrap_application(handle)


def crashing_server() -> Flask:
    """Return a server that is killed by a request that contains TRIGGER."""
    return server_with_trigger(lambda: os.killpg(os.getpgid(0), signal.SIGKILL))


def hanging_server() -> Flask:
    """Return a server whose worker stops responding when a request contains TRIGGER."""
    return server_with_trigger(lambda: os.kill(os.getpid(), signal.SIGSTOP))


def waiting_server() -> Flask:
    """Return a server that does not respond to a request that contains TRIGGER, but to all others."""
    return server_with_trigger(lambda: None)


def server_with_trigger(act: Callable[[], None]) -> Flask:
    def handle(original: Callable, environ: dict[str, Any], start: Callable) -> Iterable[bytes]:
        body = environ["wsgi.input"].read()
        if TRIGGER in body:
            os.write(1, TRIGGER_LINE)
            act()
            time.sleep(60)  # the signal may be delivered late
        return original({**environ, "wsgi.input": io.BytesIO(body)}, start)

    return wrap_application(handle)
