"""API keys of REST. Probes and metrics need none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from app.errors import Unauthenticated
from app.keys import Keys
from app.rest import refuse_by_flask

# A browser asks for a key, and sends it with every request of the page.
CHALLENGE = ("WWW-Authenticate", 'Basic realm="model", charset="UTF-8"')
FREE = re.compile(r"/v2/health/(live|ready)/?|/v2/models/[^/]+(/versions/[^/]+)?/ready/?|/metrics/?")


class Guard:
    """WSGI middleware that rejects requests without a valid key, on unknown paths too, before it reads the body."""

    def __init__(self, app: Flask, keys: Keys):
        self.app, self.keys = app, keys
        self.inner: Callable[..., Iterable[bytes]] = app.wsgi_app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        authorization = None if is_forged(environ) else environ.get("HTTP_AUTHORIZATION")
        try:
            self.keys.check(authorization, environ.get("HTTP_X_API_KEY"))
        except Unauthenticated as error:
            if not FREE.fullmatch(environ["PATH_INFO"]):
                return refuse_by_flask(self.app, error, environ, self.challenge(environ, start_response))
        return self.inner(environ, start_response)

    def challenge(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Return a start_response that adds the challenge of browsers before that of other clients."""

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [CHALLENGE, *headers], *error)

        return start if "text/html" in environ.get("HTTP_ACCEPT", "") else start_response


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
