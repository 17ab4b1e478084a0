"""Protocol rules of REST: routes, JSON, content encodings, size limits and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.protocol.types import MetadataTensor
from oip_conformance.wires import error_message
from tests.kit import models
from tests.service.rest.requests import GOOD, INFER

GETS = [
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models",
    "/v2/models/test",
    "/v2/models/test/versions/1",
    "/v2/models/test/ready",
    "/v2/models/test/versions/1/ready",
]
POSTS = [INFER, "/v2/models/test/versions/1/infer"]


@pytest.fixture(autouse=True)
def check_valid_request_afterward(client):
    """R20: check after each test that a valid request succeeds."""
    yield
    assert client.post(INFER, json=GOOD).json["outputs"][0]["data"] == [3.5]


@pytest.mark.parametrize("path", GETS)
def test_get_and_head(client, path: str) -> None:
    """R2: every path supports GET, HEAD returns the same headers without a body, and a trailing slash is allowed."""
    got, head = client.get(path), client.head(path)
    assert (got.status_code, got.mimetype) == (200, "application/json")
    assert (head.status_code, head.data, head.mimetype) == (200, b"", "application/json")
    assert head.content_length == got.content_length == len(got.data)
    for slashed in (client.get(path + "/"), client.head(path + "/")):
        assert (slashed.status_code, slashed.content_length) == (200, len(got.data))
    assert client.get(path + "/").json == got.json


@pytest.mark.parametrize("path", [each + slash for each in POSTS for slash in ("", "/")])
def test_infer_paths(client, path: str) -> None:
    """R2: inference accepts POST, with and without a version or a trailing slash."""
    response = client.post(path, json=GOOD)
    assert response.status_code == 200
    assert response.json == {
        "model_name": "test",
        "model_version": "1",
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [1], "data": [3.5]},
            {"name": "double", "datatype": "INT64", "shape": [1], "data": [14]},
        ],
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        (method, path, {"GET", "HEAD"})
        for path in GETS
        for method in ("POST", "PUT", "DELETE", "PATCH")
    ]
    + [(method, path, {"POST"}) for path in POSTS for method in ("GET", "PUT", "DELETE", "PATCH")]
    + [("BREW", "/v2", {"GET", "HEAD"}), ("TRACE", INFER, {"POST"})],
)
def test_rejects_wrong_method(client, method: str, path: str, allowed: set[str]) -> None:
    """R19: a wrong method returns 405 with the supported methods in `Allow`."""
    response = client.open(path, method=method)
    assert method in error_message(response, 405)
    assert {each.strip() for each in response.headers["Allow"].split(",")} - {"OPTIONS"} == allowed


def test_rejects_head_of_infer(client) -> None:
    """R19: HEAD of a path without GET returns 405 with `Allow` and no body."""
    response = client.head(INFER)
    assert (response.status_code, response.data, response.mimetype) == (
        405,
        b"",
        "application/json",
    )
    assert "POST" in response.headers["Allow"]


@pytest.mark.parametrize(
    ("path", "verb"), [("/v2", "GET"), ("/v2/models/test", "HEAD"), (INFER, "POST")]
)
def test_options(client, path: str, verb: str) -> None:
    """R2: OPTIONS returns the methods of a path in `Allow`, and runs nothing."""
    response = client.options(path)
    assert (response.status_code, response.data) == (200, b"")
    assert verb in response.headers["Allow"]


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v2/health",
        "/v2/models//infer",
        "/v2//health/live",
        "/V2",
        "/v2/Health/live",
        "/v2/models/test/versions/1/infer/more",
        "/v2/models/a/b/c",
        "/other/x",
        "/v2/%ff%fe",
        "/v2/%ED%A0%80",
        "/v2/🌷",
        "/../etc/passwd",
    ],
)
def test_unknown_path(client, method: str, path: str) -> None:
    """R19: an unknown path returns 404 in JSON, for every method."""
    assert f"{method} /" in error_message(client.open(path, method=method), 404)


@pytest.mark.parametrize(
    "name", ["iris", "Test", "te st", "%ff", "%00", "🌷", "test%20", "x" * 200, "%2e%2e"]
)
@pytest.mark.parametrize("path", ["/v2/models/{}", "/v2/models/{}/ready", "/v2/models/{}/infer"])
def test_unknown_model(client, path: str, name: str) -> None:
    """R1, R3: any other model name returns 404."""
    method = "POST" if path.endswith("infer") else "GET"
    assert 'Model not found. Expected "test", got "' in error_message(
        client.open(path.format(name), method=method, json=GOOD), 404
    )


@pytest.mark.parametrize("path", ["", "/ready", "/infer"])
def test_unknown_version(client, path: str) -> None:
    """R3: an unknown version returns 404 on every route of the model."""
    method = "POST" if path == "/infer" else "GET"
    response = client.open(f"/v2/models/test/versions/v1{path}", method=method, json=GOOD)
    assert (
        error_message(response, 404) == 'Model "test": version not found. Expected "1", got "v1".'
    )


def test_server_metadata(client) -> None:
    """R4: the server metadata are the name, the version and the extensions, and nothing else."""
    body = client.get("/v2").json
    assert set(body) == {"name", "version", "extensions"}
    assert body["name"]
    assert body["version"]
    assert "binary_tensor_data" in body["extensions"]


def test_model_names(client) -> None:
    """R22: the list of models contains the name of the model."""
    assert client.get("/v2/models").json == {"models": ["test"]}


def test_readiness(client) -> None:
    """R5: the health routes return `live` and `ready`, and the model's readiness includes its name."""
    assert client.get("/v2/health/live").json == {"live": True}
    assert client.get("/v2/health/ready").json == {"live": True, "ready": True}
    assert client.get("/v2/models/test/ready").json == {"name": "test", "ready": True}


def test_content_types_in_metadata(serve) -> None:
    """R6: the metadata of a tensor have its content type in `parameters`, and no `parameters` without one."""
    tensors = (
        [MetadataTensor("x", "BYTES", [-1], content_type="str")],
        [MetadataTensor("y", "FP32", [-1, 3])],
    )
    body = serve(models.model(*tensors, lambda _, x: [[0] * 3])).client.get("/v2/models/test").json
    assert body["inputs"] == [
        {"name": "x", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "str"}},
    ]
    assert body["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]


def test_exception_in_predict(serve, caplog: pytest.LogCaptureFixture) -> None:
    """R19: an exception in predict() returns 500 in JSON with its class, and only the log has the traceback."""

    def predict(_: Any, x: np.ndarray) -> Any:
        raise [RecursionError, MemoryError, KeyError, StopIteration, SystemError][int(x[0])](
            "\ud800 odd\n" * 9
        )

    module = models.model(
        [MetadataTensor("x", "INT8", [-1])], [MetadataTensor("y", "INT8", [-1])], predict
    )
    service = serve(module)
    for index, name in enumerate(
        ["RecursionError", "MemoryError", "KeyError", "StopIteration", "SystemError"]
    ):
        tensor = {"name": "x", "datatype": "INT8", "shape": [1], "data": [index]}
        assert name in error_message(service.rest.post({"inputs": [tensor]}), 500)
    assert caplog.text.count("Traceback") == 5
