"""app/custom.py: the owner's routes, middleware, codecs, metrics and gRPC interceptors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask, Response
from flask import request as flask_request

import app.custom
from app.api import InferenceRequest, RequestInput
from app.inference.call import Call
from grpc_service import client
from oip_conformance.wires import Grpc, error_message
from tests.kit import models
from tests.kit.processes import Running, free_ports, gunicorn, wait_for
from tests.kit.projects import edit, make_project

KEY = "first-key-0123456789"
CUSTOM = """
import grpc
from flask import request
from prometheus_client import Counter
from werkzeug import Request, Response

from app.api import InferenceRequest, InputCodec, RequestInput, register_input_codec

SEEN = Counter("own_requests", "Requests that the middleware saw.", ["path"])


@register_input_codec
class OwnCodec(InputCodec):
    ContentType = "own"

    @classmethod
    def decode_input(cls, tensor):
        return tensor.data


class Middleware:
    def __init__(self, wsgi):
        self.wsgi = wsgi

    def __call__(self, environ, start_response):
        SEEN.labels(Request(environ).path).inc()
        if "HTTP_X_TEAPOT" in environ:
            return Response("no coffee", 418)(environ, start_response)
        return self.wsgi(environ, start_response)


class Interceptor(grpc.ServerInterceptor):
    def intercept_service(self, continuation, details):
        SEEN.labels(details.method).inc()
        return continuation(details)


def init_app(app):
    service = app.extensions["service"]

    @app.post("/add/<name>")
    def add(name):
        values = request.get_json()
        return service.infer(InferenceRequest([RequestInput(name, "FP32", data=values)])).outputs[0].data.tolist()

    app.wsgi_app = Middleware(app.wsgi_app)


def grpc_interceptors():
    return [Interceptor()]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with additions of each kind, whose METADATA has the content type of custom.py."""
    folder = make_project(tmp_path_factory.mktemp("custom"))
    edit(folder, '"x", "FP32", [-1]', '"x", "FP32", [-1], content_type="own"')
    (folder / "app/custom.py").write_text(CUSTOM)
    (folder / "keys.txt").write_text(KEY)
    return folder


@pytest.fixture(scope="module")
def service(project: Path) -> Iterator[Running]:
    settings = {"API_KEYS_FILE": project / "keys.txt", "CORS_ORIGINS": "*", "LOG_FORMAT": "json"}
    with gunicorn(project, PYTHONPATH=project, **settings) as running:
        yield running


def post(service: Running, path: str, json: Any, **headers: str) -> requests.Response:
    return requests.post(
        f"http://{service.http_address}{path}",
        json=json,
        headers={"X-API-Key": KEY, **headers},
        timeout=180,
    )


def sample(service: Running, line: str) -> bool:
    return line.encode() in (service.get("/metrics") or b"")


def test_route_calls_the_model(service: Running) -> None:
    """A route calls the model, needs an API key, and counts as an inference request in metrics and logs."""
    response = post(service, "/add/x", [1, 2])
    assert (response.status_code, response.json()) == (200, [1.5, 2.5])
    assert response.headers["X-Request-Id"]
    assert post(service, "/add/x", [1, 2], **{"X-API-Key": ""}).status_code == 401
    failed = post(service, "/add/secret", [1, 2])
    assert (failed.status_code, failed.json()) == (
        400,
        {"error": 'Unknown input. Expected "x", got "secret".'},
    )
    wait_for(lambda: sample(service, 'code="200",model="adder",operation="infer",protocol="rest"'))
    wait_for(lambda: '"path":"/add/{name}","http_status":400' in service.log())
    assert "secret" not in service.log()


def test_middleware_sees_permitted_requests(service: Running) -> None:
    """Middleware sees all requests with a key, also on the fast path. Its own response has the service's headers."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    for _ in range(3):
        assert post(service, "/v2/models/adder/infer", {"inputs": [tensor]}).status_code == 200
    assert post(service, "/v2/models/adder/infer", {}, **{"X-API-Key": ""}).status_code == 401
    wait_for(lambda: sample(service, 'own_requests_total{path="/v2/models/adder/infer"} 3.0'))
    response = post(service, "/unknown", {}, **{"X-Teapot": "yes"})
    assert (response.status_code, response.text) == (418, "no coffee")
    assert response.headers["X-Request-Id"]
    assert response.headers["Access-Control-Allow-Origin"] == "*"


def test_interceptor_sees_permitted_calls(service: Running) -> None:
    """An interceptor sees the calls with a key."""
    with service.own_channel() as channel:
        assert (
            Grpc(channel, model="adder").infer([("x", "FP32", [1], [1.0])]).kind
            == "UNAUTHENTICATED"
        )
        sent = InferenceRequest([RequestInput("x", "FP32", data=[1])])
        response = client.infer(channel, "adder", sent, metadata=[("x-api-key", KEY)])
    assert response.outputs[0].data.tolist() == [1.5]
    wait_for(
        lambda: sample(
            service, 'own_requests_total{path="/inference.GRPCInferenceService/ModelInfer"} 1.0'
        )
    )


@pytest.fixture
def additions(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Flask], None]], None]:
    """Return a function that replaces init_app()."""
    return lambda init_app: monkeypatch.setattr(app.custom, "init_app", init_app)


@pytest.mark.parametrize("rows", [1, 8])
def test_fast_path_remains_in_use(serve, additions: Callable[..., None], rows: int) -> None:
    """Routes and middleware of custom.py do not disable the fast path. With batching, they work, too."""
    seen = []

    def init_app(flask: Flask) -> None:
        infer, wsgi = flask.extensions["service"].infer, flask.wsgi_app

        @flask.put("/echo")
        def echo() -> Any:
            tensor = RequestInput("x", "FP32", data=flask_request.get_json())
            return infer(InferenceRequest([tensor])).to_dict()["outputs"][0]["data"]

        flask.wsgi_app = lambda environ, start: (  # type: ignore[method-assign]
            seen.append(environ["PATH_INFO"]),
            wsgi(environ, start),
        )[1]
        seen.append(flask.wsgi_app)
        seen.append(wsgi)

    additions(init_app)
    service = serve(models.echo("FP32", [-1]), max_batch_size=rows)
    _, fast_path = seen
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    for _ in range(2):
        assert service.client.put("/echo", json=[1, 2]).json == [1, 2]
        assert service.client.post("/v2/models/test/infer", json=body).status_code == 200
    assert fast_path.bypasses_flask
    assert seen[2:] == ["/echo", "/v2/models/test/infer"] * 2
    assert error_message(service.client.put("/echo", json=["a"]), 400)


def generator_middleware(wsgi: Any) -> Any:
    """Return a middleware that is a generator, so that nothing runs before its first iteration."""

    def run(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        yield from wsgi(environ, start_response)

    return run


@pytest.mark.parametrize("kind", ["generator middleware", "lazy response"])
def test_lazy_responses_are_recorded_at_their_end(
    serve, additions: Callable[..., None], kind: str
) -> None:
    """A response whose body is a generator is recorded with its status and size, when it has ended."""
    is_sent: list[bool] = []

    def init_app(flask: Flask) -> None:
        @flask.get("/parts")
        def parts() -> Response:
            def generate() -> Iterator[bytes]:
                yield b"one,"
                is_sent.append(not recorded)
                yield b"two"

            return Response(generate(), 202)

        if kind == "generator middleware":
            flask.wsgi_app = generator_middleware(flask.wsgi_app)  # type: ignore[method-assign]

    additions(init_app)
    service = serve(models.echo("FP32", [-1]))
    recorded: list[tuple[str, str, int]] = []

    def observe(calls: list[Call]) -> None:
        for call in calls:
            recorded.append((call.operation, call.outcome.status, call.outcome.response_bytes))

    service.core.observer_queue.add_observer(observe)
    response = service.client.get("/parts")
    assert response.data == b"one,two"
    response.close()

    assert is_sent == [True]
    assert recorded == [("parts", "202", 7)]


def test_response_whose_close_fails_is_recorded(serve, additions: Callable[..., None]) -> None:
    """A lazy response is recorded, even if a callback at its end raises an exception."""

    def init_app(flask: Flask) -> None:
        @flask.get("/parts")
        def parts() -> Response:
            response = Response(iter([b"one"]))
            response.call_on_close(lambda: 1 / 0)
            return response

    additions(init_app)
    service = serve(models.echo("FP32", [-1]))
    recorded: list[tuple[str, int]] = []

    def observe(calls: list[Call]) -> None:
        for call in calls:
            recorded.append((call.outcome.status, call.outcome.response_bytes))

    service.core.observer_queue.add_observer(observe)
    response = service.client.get("/parts")
    with pytest.raises(ZeroDivisionError):
        response.close()

    assert recorded == [("200", 3)]


@pytest.mark.parametrize("is_lazy", [False, True])
def test_middleware_without_start_is_recorded(
    serve, additions: Callable[..., None], is_lazy: bool
) -> None:
    """A middleware that raises an exception before its response is recorded with its error, without a status."""

    def init_app(flask: Flask) -> None:
        def fail_late(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
            raise ZeroDivisionError
            yield

        def fail(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
            raise ZeroDivisionError

        flask.wsgi_app = fail_late if is_lazy else fail  # type: ignore[method-assign]

    additions(init_app)
    service = serve(models.echo("FP32", [-1]))
    statuses: list[tuple[str, Any]] = []
    service.core.observer_queue.add_observer(
        lambda calls: statuses.extend(
            (call.outcome.status, call.outcome.error_class) for call in calls
        )
    )
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v2"}

    def run() -> None:
        body = service.app.wsgi_app(environ, lambda *response: None)
        with closing(body):  # type: ignore[type-var]
            list(body)

    with pytest.raises(ZeroDivisionError):
        run()
    assert statuses == [("", ZeroDivisionError)]


def start(project: Path, *words: str) -> str:
    """Run a command that must fail to start, and return the last line of its output."""
    http, grpc_port = free_ports(2)
    ports = {
        "HTTP_PORT": str(http),
        "GRPC_PORT": str(grpc_port),
        "HOST": "127.0.0.1",
        "WORKERS": "1",
    }
    env = {**os.environ, **ports, "PYTHONPATH": str(project)}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=project, env=env, capture_output=True, text=True
    )
    assert done.returncode
    assert done.stderr.count("Traceback") <= 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (
            "import nosuch",
            "gunicorn app:create_app()",
            "Cannot start: app/custom.py, line 1: ModuleNotFoundError: ",
        ),
        (
            "import nosuch",
            "grpc_service",
            "Cannot start: app/custom.py, line 1: ModuleNotFoundError: ",
        ),
        ("\ndef init_app(app:", "app check", "Error: import: app/custom.py, line 2: SyntaxError: "),
        (
            "def init_app(app):\n    app.nosuch()",
            "gunicorn app:create_app()",
            "app/custom.py, line 2: AttributeError",
        ),
        (
            "def init_app(app): pass\n",
            "gunicorn app:create_app()",
            "no attribute 'grpc_interceptors'",
        ),
        (
            "def grpc_interceptors():\n    return 1 / 0",
            "grpc_service",
            "app/custom.py, line 2: ZeroDivisionError: ",
        ),
    ],
)
def test_startup_reports_mistake(tmp_path: Path, text: str, words: str, expected: str) -> None:
    """Each way to start the service reports an error of custom.py with its file and line."""
    folder = make_project(tmp_path)
    (folder / "app/custom.py").write_text(text)
    assert expected in start(folder, *words.split())
