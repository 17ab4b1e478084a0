"""The fast path: its responses equal those of Flask's dispatch, and it skips nothing that a user adds to Flask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import flask
import pytest
from flask import Flask, Response, jsonify, request
from flask.testing import FlaskClient

import app
from app.protocol.errors import InvalidInput
from oip_conformance.wires import error_message
from tests.kit import models

GOOD: dict[str, Any] = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, -2]}]
}
BAD: dict[str, Any] = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1.5, -2]}]
}
INFER = "/v2/models/test/infer"


@pytest.fixture
def application() -> Flask:
    """Return an application that has received no request yet."""
    return app.create_app(module=models.echo("FP32", [-1]))


def warm_client(application: Flask) -> FlaskClient:
    """Return a client after the first request, which decides if the fast path is used."""
    client = application.test_client()
    assert client.post(INFER, json=GOOD).status_code == 200
    return client


def is_open(application: Flask) -> bool:
    return application.wsgi_app.wsgi.bypasses_flask  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, GOOD),
        (
            {"Accept-Encoding": "gzip"},
            {"inputs": [{**GOOD["inputs"][0], "shape": [4000], "data": [0.5] * 4000}]},
        ),
        ({}, {**GOOD, "parameters": {"binary_data_output": True}}),
        ({}, {**GOOD, "id": "ü"}),
        ({}, BAD),
        ({"Content-Encoding": "br"}, GOOD),
        ({"Inference-Header-Content-Length": "x"}, GOOD),
    ],
)
@pytest.mark.parametrize("path", [INFER, "/v2/models/test/versions/1/infer"])
def test_same_responses_as_flask(
    application: Flask, path: str, headers: dict[str, str], body: Any
) -> None:
    """The first request, through Flask, and the second, on the fast path, have the same status, headers and body."""
    client = application.test_client()
    named = {"X-Request-Id": "same", **headers}
    first, second = (client.post(path, json=body, headers=named) for _ in range(2))
    assert is_open(application)
    assert (first.status, sorted(first.headers), first.data) == (
        second.status,
        sorted(second.headers),
        second.data,
    )


def test_flask_handles_other_routes(application: Flask) -> None:
    """Flask handles every other path and method."""
    client = warm_client(application)
    assert client.get("/v2/models/test").json["name"] == "test"
    assert "GET" in error_message(client.get(INFER), 405)
    assert "other" in error_message(client.post("/v2/models/other/infer", json=GOOD), 404)
    assert client.post(INFER + "/", json=GOOD).status_code == 200


@pytest.mark.parametrize("name", ["naïve model 🌷", "50%", "a?b#c"])
def test_percent_encoded_model_name(serve, name: str) -> None:
    """The fast path recognizes a model name that is percent-encoded in the path."""
    service = serve(models.echo("FP32", [-1]), model_name=name)
    path = f"/v2/models/{quote(name)}/infer"
    for _ in range(2):
        assert service.client.post(path, json=GOOD).json["model_name"] == name
    assert is_open(service.app)


def before(application: Flask, note: Callable[[], None]) -> None:
    application.before_request(lambda: note())


def after(application: Flask, note: Callable[[], None]) -> None:
    application.after_request(lambda response: (note(), response)[1])


def teardown(application: Flask, note: Callable[[], None]) -> None:
    application.teardown_request(lambda error: note())


def teardown_context(application: Flask, note: Callable[[], None]) -> None:
    application.teardown_appcontext(lambda error: note())


def preprocessor(application: Flask, note: Callable[[], None]) -> None:
    application.url_value_preprocessor(lambda endpoint, values: note())


def of_the_blueprint(application: Flask, note: Callable[[], None]) -> None:
    application.before_request_funcs.setdefault("rest", []).append(lambda: note())


def view(application: Flask, note: Callable[[], None]) -> None:
    inner = application.view_functions["rest.infer"]
    application.view_functions["rest.infer"] = lambda **arguments: (note(), inner(**arguments))[1]


def route(application: Flask, note: Callable[[], None]) -> None:
    @application.post(INFER)
    def own() -> Response:
        note()
        return jsonify(own=True)


def middleware(application: Flask, note: Callable[[], None]) -> None:
    inner = application.wsgi_app
    application.wsgi_app = lambda *args: (note(), inner(*args))[1]  # type: ignore[method-assign]


ADDITIONS = [
    before, after, teardown, teardown_context, preprocessor, of_the_blueprint, view, route, middleware,
]  # fmt: skip


@pytest.mark.parametrize("add", ADDITIONS)
def test_additions_to_flask_see_every_request(
    application: Flask, add: Callable[[Flask, Callable[[], None]], None]
) -> None:
    """A hook, view, route or middleware that a user adds sees every inference request."""
    seen: list[str] = []
    add(application, lambda: seen.append("request"))
    client = application.test_client()
    for count in (1, 2, 3):
        assert client.post(INFER, json=GOOD).status_code == 200
        assert len(seen) == count


@pytest.mark.parametrize(
    "name", ["request_started", "request_finished", "request_tearing_down", "appcontext_pushed"]
)
def test_listeners_of_signals_see_every_request(application: Flask, name: str) -> None:
    """A listener of Flask's signals receives one for every inference request."""
    seen: list[Any] = []

    def listen(sender: Any, **details: Any) -> None:
        seen.append(sender)

    with getattr(flask, name).connected_to(listen, application):
        client = application.test_client()
        for count in (1, 2, 3):
            client.post(INFER, json=GOOD)
            assert len(seen) == count


def test_error_handler_of_user(application: Flask) -> None:
    """An error on the fast path reaches the error handler that a user registers."""
    application.register_error_handler(
        InvalidInput, lambda error: (jsonify(mine=str(error), path=request.path), 418)
    )
    client = warm_client(application)
    response = client.post(INFER, json=BAD)
    assert is_open(application)
    assert (response.status_code, response.json["path"]) == (418, INFER)


def test_patched_method_sees_every_request(
    application: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method of Flask that a tracer has wrapped is called for every inference request."""
    inner, seen = Flask.dispatch_request, []

    def traced(self: Flask) -> Any:
        seen.append(self)
        return inner(self)

    monkeypatch.setattr(Flask, "dispatch_request", traced)
    client = application.test_client()
    for count in (1, 2):
        client.post(INFER, json=GOOD)
        assert len(seen) == count


def test_hooks_of_subclass_see_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that a tracer's subclass of Flask adds in create_app() see every inference request."""
    seen: list[str] = []

    class Traced(Flask):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            self.before_request(lambda: seen.append("request"))

    monkeypatch.setattr(flask, "Flask", Traced)
    client = app.create_app(module=models.echo("FP32", [-1])).test_client()
    for count in (1, 2):
        assert client.post(INFER, json=GOOD).status_code == 200
        assert len(seen) == count


def test_rejects_hooks_after_first_request(application: Flask) -> None:
    """After the first request, Flask rejects new hooks."""
    client = warm_client(application)
    with pytest.raises(AssertionError, match="can no longer be called"):
        application.before_request(lambda: None)
    assert client.post(INFER, json=GOOD).status_code == 200


def test_trusted_hosts(application: Flask) -> None:
    """Flask checks TRUSTED_HOSTS for every inference request."""
    application.config["TRUSTED_HOSTS"] = ["good.example"]
    client = application.test_client()
    for _ in range(2):
        assert client.post(INFER, json=GOOD, base_url="http://good.example").status_code == 200
        assert client.post(INFER, json=GOOD, base_url="http://bad.example").status_code == 400


def test_client_keeps_request_context(application: Flask) -> None:
    """A test client that is used as a context manager keeps the request context."""
    warm_client(application)
    with application.test_client() as client:
        client.post(f"{INFER}?a=1", json=GOOD)
        assert request.args["a"] == "1"


def test_under_a_prefix(application: Flask) -> None:
    """The fast path works if the application is mounted under a path prefix."""
    client = warm_client(application)
    response = client.post(INFER, json=GOOD, base_url="http://localhost/below")
    assert response.json["outputs"][0]["data"] == [1.5, -2]
