"""The door of REST where there are API keys: it lets in who shows one, and probes and metrics from anyone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from app.errors import Unauthenticated
from app.keys import Keys
from app.rest import refuse_by_flask

# What makes a browser ask for a key, and send it with all that its page asks for.
CHALLENGE = ("WWW-Authenticate", 'Basic realm="model", charset="UTF-8"')
FREE = re.compile(r"/v2/health/(live|ready)/?|/v2/models/[^/]+(/versions/[^/]+)?/ready/?|/metrics/?")


class Guard:
    """A WSGI application in front of that of `app`; it refuses before a body is read, and unknown paths alike."""

    def __init__(self, app: Flask, keys: Keys):
        self.app, self.keys = app, keys
        self.inner: Callable[..., Iterable[bytes]] = app.wsgi_app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        authorization = environ.get("HTTP_AUTHORIZATION")
        if is_forged(environ, authorization):
            authorization = None
        try:
            self.keys.check(authorization, environ.get("HTTP_X_API_KEY"))
        except Unauthenticated as error:
            if not FREE.fullmatch(environ["PATH_INFO"]):
                start = asking(start_response) if "text/html" in environ.get("HTTP_ACCEPT", "") else start_response
                return refuse_by_flask(self.app, error, environ, start)
        return self.inner(environ, start_response)


def is_forged(environ: dict[str, Any], authorization: str | None) -> bool:
    """Whether a page of another site made a browser send the key that its user once typed.

    Such a page cannot read the answer, but could keep the model busy. Browsers say over TLS whose page it is that asks,
    and for a POST its origin always.
    """
    if environ["REQUEST_METHOD"] in ("GET", "HEAD") or not (authorization or "").lower().startswith("basic "):
        return False
    if site := environ.get("HTTP_SEC_FETCH_SITE"):
        return site not in ("same-origin", "none")
    origin = environ.get("HTTP_ORIGIN")
    return origin is not None and origin.partition("://")[2] != environ.get("HTTP_HOST")


def asking(start_response: Any) -> Any:
    """`start_response`, with a challenge that a browser knows before the one that clients know."""

    def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        return start_response(status, [CHALLENGE, *headers], *error)

    return start
