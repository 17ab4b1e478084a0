"""The short way past Flask's dispatch: its answers are Flask's own, and nothing that a user adds is stepped around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import flask
import pytest
from flask import Flask, Response, jsonify, request
from flask.testing import FlaskClient

import app
from app.errors import InvalidInput
from tests.service import models
from tests.service.wires import pack, refusal

GOOD: dict[str, Any] = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, -2]}]}
BAD: dict[str, Any] = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1.5, -2]}]}
INFER = "/v2/models/test/infer"


@pytest.fixture
def made() -> Flask:
    """An application that no request has met yet."""
    return app.create_app(module=models.echo("FP32", [-1]))


def warm(made: Flask) -> FlaskClient:
    """A client behind the first request, from which on the short way is open or shut."""
    client = made.test_client()
    assert client.post(INFER, json=GOOD).status_code == 200
    return client


def is_open(made: Flask) -> bool:
    return made.wsgi_app.wsgi.is_open  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, GOOD),
        ({"Accept-Encoding": "gzip"}, {"inputs": [{**GOOD["inputs"][0], "shape": [4000], "data": [0.5] * 4000}]}),
        ({}, {**GOOD, "parameters": {"binary_data_output": True}}),
        ({}, {**GOOD, "id": "ü"}),
        ({}, BAD),
        ({"Content-Encoding": "br"}, GOOD),
        ({"Inference-Header-Content-Length": "x"}, GOOD),
    ],
)
@pytest.mark.parametrize("path", [INFER, "/v2/models/test/versions/1/infer"])
def test_the_same_answers(made: Flask, path: str, headers: dict[str, str], body: Any) -> None:
    """The first request goes Flask's way and the second the short one: status, headers and body are alike."""
    client = made.test_client()
    named = {"X-Request-Id": "same", **headers}
    first, second = (client.post(path, json=body, headers=named) for _ in range(2))
    assert is_open(made)
    assert (first.status, sorted(first.headers), first.data) == (second.status, sorted(second.headers), second.data)


def test_what_is_not_infer(made: Flask) -> None:
    """Every other path and verb goes Flask's way."""
    client = warm(made)
    assert client.get("/v2/models/test").json["name"] == "test"
    assert "GET" in refusal(client.get(INFER), 405)
    assert "other" in refusal(client.post("/v2/models/other/infer", json=GOOD), 404)
    assert client.post(INFER + "/", json=GOOD).status_code == 200


@pytest.mark.parametrize("name", ["naïve model 🌷", "50%", "a?b#c"])
def test_a_name_that_paths_encode(serve, name: str) -> None:
    """The path of a name that needs percent-encoding is known too."""
    service = serve(models.echo("FP32", [-1]), model_name=name)
    path = f"/v2/models/{quote(name)}/infer"
    for _ in range(2):
        assert service.client.post(path, json=GOOD).json["model_name"] == name
    assert is_open(service.app)


def before(made: Flask, note: Callable[[], None]) -> None:
    made.before_request(lambda: note())


def after(made: Flask, note: Callable[[], None]) -> None:
    made.after_request(lambda response: (note(), response)[1])


def teardown(made: Flask, note: Callable[[], None]) -> None:
    made.teardown_request(lambda error: note())


def teardown_context(made: Flask, note: Callable[[], None]) -> None:
    made.teardown_appcontext(lambda error: note())


def preprocessor(made: Flask, note: Callable[[], None]) -> None:
    made.url_value_preprocessor(lambda endpoint, values: note())


def of_the_blueprint(made: Flask, note: Callable[[], None]) -> None:
    made.before_request_funcs.setdefault("rest", []).append(lambda: note())


def view(made: Flask, note: Callable[[], None]) -> None:
    inner = made.view_functions["rest.infer"]
    made.view_functions["rest.infer"] = lambda **arguments: (note(), inner(**arguments))[1]


def route(made: Flask, note: Callable[[], None]) -> None:
    @made.post(INFER)
    def own() -> Response:
        note()
        return jsonify(own=True)


def middleware(made: Flask, note: Callable[[], None]) -> None:
    inner = made.wsgi_app
    made.wsgi_app = lambda *args: (note(), inner(*args))[1]  # type: ignore[method-assign]


ADDITIONS = [
    before, after, teardown, teardown_context, preprocessor, of_the_blueprint, view, route, middleware,
]  # fmt: skip


@pytest.mark.parametrize("add", ADDITIONS)
def test_what_a_user_adds(made: Flask, add: Callable[[Flask, Callable[[], None]], None]) -> None:
    """A hook, view, route or middleware of the user's own sees every infer request."""
    seen: list[str] = []
    add(made, lambda: seen.append("request"))
    client = made.test_client()
    for count in (1, 2, 3):
        assert client.post(INFER, json=GOOD).status_code == 200
        assert len(seen) == count


@pytest.mark.parametrize("name", ["request_started", "request_finished", "request_tearing_down", "appcontext_pushed"])
def test_listeners(made: Flask, name: str) -> None:
    """Who listens to Flask's signals hears of every infer request."""
    seen: list[Any] = []

    def listen(sender: Any, **details: Any) -> None:
        seen.append(sender)

    with getattr(flask, name).connected_to(listen, made):
        client = made.test_client()
        for count in (1, 2, 3):
            client.post(INFER, json=GOOD)
            assert len(seen) == count


def test_error_handlers(made: Flask) -> None:
    """A failure reaches the user's own error handler."""
    made.register_error_handler(InvalidInput, lambda error: (jsonify(mine=str(error), path=request.path), 418))
    client = warm(made)
    response = client.post(INFER, json=BAD)
    assert is_open(made)
    assert (response.status_code, response.json["path"]) == (418, INFER)


def test_a_class_that_is_patched(made: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer that wraps a method of Flask's class is not stepped around."""
    inner, seen = Flask.dispatch_request, []

    def traced(self: Flask) -> Any:
        seen.append(self)
        return inner(self)

    monkeypatch.setattr(Flask, "dispatch_request", traced)
    client = made.test_client()
    for count in (1, 2):
        client.post(INFER, json=GOOD)
        assert len(seen) == count


def test_a_class_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that a tracer's subclass of Flask adds inside create_app() see every infer request."""
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


def test_hooks_come_too_late(made: Flask) -> None:
    """Behind the first request Flask itself takes no more hooks."""
    client = warm(made)
    with pytest.raises(AssertionError, match="can no longer be called"):
        made.before_request(lambda: None)
    assert client.post(INFER, json=GOOD).status_code == 200


def test_trusted_hosts(made: Flask) -> None:
    """Flask's check of the host is kept."""
    made.config["TRUSTED_HOSTS"] = ["good.example"]
    client = made.test_client()
    for _ in range(2):
        assert client.post(INFER, json=GOOD, base_url="http://good.example").status_code == 200
        assert client.post(INFER, json=GOOD, base_url="http://bad.example").status_code == 400


def test_a_test_that_keeps_the_context(made: Flask) -> None:
    """A test client that is asked to keep the request's context does."""
    warm(made)
    with made.test_client() as client:
        client.post(f"{INFER}?a=1", json=GOOD)
        assert request.args["a"] == "1"


def test_under_a_prefix(made: Flask) -> None:
    """Mounted below another path, the short way is the same."""
    client = warm(made)
    response = client.post(INFER, json=GOOD, base_url="http://localhost/below")
    assert response.json["outputs"][0]["data"] == [1.5, -2]


def test_bytes_both_ways(made: Flask) -> None:
    """A binary request on the short way has its bytes back."""
    client, blob = warm(made), pack("FP32", [1.5, -2.0])
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": len(blob)}}
    head = flask.json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    response = client.post(INFER, data=head + blob, headers={"Inference-Header-Content-Length": str(len(head))})
    assert response.data.endswith(blob)
