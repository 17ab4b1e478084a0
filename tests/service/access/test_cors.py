"""CORS_ORIGINS: pages of other origins call the service over HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.kit import models
from tests.kit.processes import Running, gunicorn
from tests.service.access.secure_client import INFER, KEY, ROOT

ORIGIN = "https://app.example.com"
REQUEST = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.5]}]})
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type,x-api-key",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    keys = tmp_path_factory.mktemp("cors") / "keys.txt"
    keys.write_text(KEY)
    settings = {"CORS_ORIGINS": f"http://localhost:3000, {ORIGIN}", "API_KEYS_FILE": keys}
    with gunicorn(ROOT, "tests.service.apps:numbers()", **settings) as running:
        yield running


def call(
    service: Running, method: str, path: str, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body of a response. `_` in the name of a header is `-`."""
    with closing(
        http.client.HTTPConnection("127.0.0.1", service.http_port, timeout=180)
    ) as connection:
        body = REQUEST if method == "POST" else None
        connection.request(
            method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()


def test_preflight_needs_no_key(service: Running) -> None:
    """A preflight request of a permitted origin gets 204 with the requested method and headers."""
    status, headers, body = call(service, "OPTIONS", INFER, Origin=ORIGIN, **PREFLIGHT)
    assert (status, body) == (204, b"")
    assert headers["Access-Control-Allow-Origin"] == ORIGIN
    assert headers["Access-Control-Allow-Methods"] == "POST"
    assert headers["Access-Control-Allow-Headers"] == "content-type,x-api-key"
    assert headers["Access-Control-Max-Age"] == "7200"
    assert headers["Vary"] == "Origin"
    assert headers["X-Request-Id"]


@pytest.mark.parametrize(
    "extra", [{}, {"Origin": ORIGIN}, {"Origin": "https://evil.example", **PREFLIGHT}]
)
def test_other_options_requests_need_a_key(service: Running, extra: dict[str, str]) -> None:
    """OPTIONS is a preflight request only with a method and a permitted origin."""
    status, headers, _ = call(service, "OPTIONS", INFER, **extra)
    assert status == 401
    assert "Access-Control-Allow-Methods" not in headers


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        (INFER, KEY, 200),
        (INFER, "", 401),
        ("/v2/models/other/infer", KEY, 404),
        ("/v2/models/test", KEY, 405),
    ],
)
def test_permitted_origin_reads_responses(
    service: Running, path: str, key: str, status: int
) -> None:
    """A page of a permitted origin can read every response, also an error, and the headers that a client needs."""
    status_code, headers, _ = call(service, "POST", path, Origin=ORIGIN, x_api_key=key)
    assert status_code == status
    assert (headers["Access-Control-Allow-Origin"], headers["Vary"]) == (ORIGIN, "Origin")
    assert headers["Access-Control-Expose-Headers"] == "*"
    assert "Access-Control-Allow-Credentials" not in headers


@pytest.mark.parametrize(
    "origin", [{}, {"Origin": "https://evil.example"}, {"Origin": f"{ORIGIN}.evil.example"}]
)
def test_other_origin_cannot_read_responses(service: Running, origin: dict[str, str]) -> None:
    """Other origins get no permission, and caches do not use the response for a permitted origin."""
    status, headers, _ = call(service, "POST", INFER, x_api_key=KEY, **origin)
    assert (status, headers["Vary"]) == (200, "Origin")
    assert not [name for name in headers if name.startswith("Access-Control")]


def test_all_origins(serve) -> None:
    """With `*`, all origins are permitted, and the response does not depend on the origin."""
    client = serve(models.echo("FP32", [-1]), cors_origins=("*",)).client
    for headers in ({}, {"Origin": ORIGIN}):
        response = client.get("/v2", headers=headers)
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert "Vary" not in response.headers
    assert client.options(INFER, headers={"Origin": ORIGIN, **PREFLIGHT}).status_code == 204


def test_no_permission_by_default(serve) -> None:
    """Without CORS_ORIGINS, Flask responds to OPTIONS, and no page of another origin can read a response."""
    client = serve(models.echo("FP32", [-1])).client
    response = client.options(INFER, headers={"Origin": ORIGIN, **PREFLIGHT})
    assert response.status_code == 200
    assert not [name for name, _ in response.headers if name.startswith(("Access-Control", "Vary"))]


def test_fast_path_remains_in_use(serve) -> None:
    """The middleware is outside the fast path, which still bypasses Flask, and both add the same headers."""
    service = serve(models.echo("FP32", [-1]), cors_origins=(ORIGIN,))
    sent = {"Origin": ORIGIN, "X-Request-Id": "same"}
    first, second = (service.client.post(INFER, data=REQUEST, headers=sent) for _ in range(2))
    assert service.app.wsgi_app.wsgi.wsgi.bypasses_flask
    assert first.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert (sorted(first.headers), first.data) == (sorted(second.headers), second.data)
