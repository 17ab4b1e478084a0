"""Rules that depend on the model: required inputs, fixed dimensions, omitted outputs, and a model that is not ready."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.inference.model_runner import ModelState
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import error_message
from tests.kit import models

ROWS = ("a", "FP32", [2, 2], [1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(("inputs", "got"), [([], "none"), ([("b", "INT64", [1], [5])], '"b"')])
def test_rejects_missing_inputs(serve, form: str, inputs: list, got: str) -> None:
    """R15: a missing input is rejected if its parameter of predict() has no default."""
    response = serve(models.two_by_two()).forms[form].infer(inputs)
    text = f'Input "a": missing. Expected "a" (optional: "b"), got {got}.'
    assert (response.kind, response.text) == ("INVALID_ARGUMENT", text)


def test_scalar_has_one_element(serve, form: str) -> None:
    """R9: the shape [] has one element and does not match [1]."""
    client = serve(models.echo("FP32", [])).forms[form]
    assert client.infer([("x", "FP32", [], [1.5])]).outputs == {"y": ("FP32", [], [1.5])}
    assert (
        client.infer([("x", "FP32", [1], [1.5])]).text
        == 'Input "x": invalid shape. Expected [], got [1].'
    )
    assert client.infer([("x", "FP32", [], [])]).kind == "INVALID_ARGUMENT"
    assert client.infer([("x", "FP32", [], [1.5, 2.5])]).kind == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        *(([-1], [3, 1]), ([-1], [0, 1]), ([-1], [1, 1]), ([1], [1, 1]), ([3], [3, 1])),
        *(([-1, 1], [3]), ([-1, 1], [0]), ([1, 1], [1]), ([3, 1], [3])),
    ],
)
def test_columns_match_vectors(serve, form: str, declared: list[int], sent: list[int]) -> None:
    """R15: [N,1] matches a declared rank 1, [N] matches [-1,1] and [N,1], and predict() receives the declared rank."""
    shapes = []

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        shapes.append(list(x.shape))
        return x

    tensors = [MetadataTensor("x", "INT32", declared)], [MetadataTensor("y", "INT32", declared)]
    values, shape = list(range(sent[0])), [sent[0], 1][: len(declared)]
    response = (
        serve(models.model(*tensors, predict)).forms[form].infer([("x", "INT32", sent, values)])
    )
    assert response.outputs["y"] == ("INT32", shape, values)
    assert shapes == [shape]


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        ([2], [3, 1]),
        ([1], [3, 1]),
        ([2, 1], [3]),
        ([-1], [1, 3]),
        ([3], [1, 3]),
        ([-1, 2], [3]),
        ([-1, -1], [3]),
    ],
)
def test_rejects_other_ranks(echoes, form: str, declared: list[int], sent: list[int]) -> None:
    """R15: other ranks and sizes are rejected, and the message has the shape that the client sent."""
    response = echoes("INT32", *declared).forms[form].infer([("x", "INT32", sent, [1, 2, 3])])
    shapes = [f"[{','.join(map(str, shape))}]" for shape in (declared, sent)]
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text == f'Input "x": invalid shape. Expected {shapes[0]}, got {shapes[1]}.'


def test_predict_may_omit_outputs_that_are_not_requested(serve, form: str) -> None:
    """R16: predict() may omit an output that the request does not ask for, but not one that it does."""

    def predict(_: Any, request: InferenceRequest) -> dict[str, Any]:
        requested = {output.name for output in request.outputs}
        return {"cheap": [1.0]} | ({"costly": [2.0]} if "costly" in requested else {})

    tensors = [MetadataTensor(name, "FP32", [1]) for name in ("cheap", "costly")]
    client = serve(models.model([MetadataTensor("x", "FP32", [1])], tensors, predict)).forms[form]
    assert list(client.infer([("x", "FP32", [1], [0])], ["cheap"]).outputs) == ["cheap"]
    both = client.infer([("x", "FP32", [1], [0])], ["costly", "cheap"])
    assert list(both.outputs) == ["costly", "cheap"]
    failed = client.infer([("x", "FP32", [1], [0])])
    assert 'Output "costly": not returned by predict()' in failed.text


def test_rejects_requests_until_ready(serve, form: str) -> None:
    """R5, R19, G1: inference requests are rejected while the model is not ready."""
    service = serve(models.two_by_two())
    with service.model_state(ModelState.WARMING_UP):
        response = service.forms[form].infer([ROWS])
    assert (response.kind, response.text) == (
        "UNAVAILABLE",
        'Model "test": not ready. Retry later.',
    )
    assert service.forms[form].infer([ROWS]).is_success


def test_health_checks_report_not_ready(serve) -> None:
    """R5: while the model is not ready, readiness checks fail, and liveness checks and metadata succeed."""
    service = serve(models.two_by_two())
    with service.model_state(ModelState.LOADING):
        for path, body in [
            ("/v2/health/ready", {"live": True, "ready": False}),
            ("/v2/models/test/ready", {"name": "test", "ready": False}),
            ("/v2/models/test/versions/1/ready", {"name": "test", "ready": False}),
        ]:
            response = service.client.get(path)
            assert (response.status_code, response.json) == (503, body)
            assert int(response.headers["Retry-After"]) > 0
        assert "not ready" in error_message(service.rest.post({"inputs": []}), 503)
        assert not service.grpc.call("ServerReady").ready
        assert not service.grpc.call("ModelReady", name="test").ready
    for path in ["/v2/health/live", "/v2", "/v2/models/test"]:
        assert service.client.get(path).status_code == 200
    assert service.grpc.call("ServerLive").live
    assert service.grpc.call("ModelMetadata", name="test").name == "test"
