"""The door of REST where there are API keys: it lets in who shows one, and probes and metrics from anyone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from app.errors import Unauthenticated
from app.keys import Keys
from app.rest import refuse_by_flask

FREE = re.compile(r"/v2/health/(live|ready)/?|/v2/models/[^/]+(/versions/[^/]+)?/ready/?|/metrics/?")


class Guard:
    """A WSGI application in front of that of `app`; it refuses before a body is read, and unknown paths alike."""

    def __init__(self, app: Flask, keys: Keys):
        self.app, self.keys = app, keys
        self.inner: Callable[..., Iterable[bytes]] = app.wsgi_app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        try:
            self.keys.check(environ.get("HTTP_AUTHORIZATION"), environ.get("HTTP_X_API_KEY"))
        except Unauthenticated as error:
            if not FREE.fullmatch(environ["PATH_INFO"]):
                return refuse_by_flask(self.app, error, environ, start_response)
        return self.inner(environ, start_response)
