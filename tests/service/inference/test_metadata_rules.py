"""Rules for metadata, model configuration and the repository index, on both transports."""

from __future__ import annotations

import pytest

from app.inference.model_runner import ModelState
from oip_conformance import messages
from oip_conformance.wires import parameter_values
from tests.kit import models


def test_model_metadata_contains_declared_parameters_and_properties(serve) -> None:
    """R6: both transports return content types, `optional` and properties. REST returns the request's content type."""
    service = serve(models.described())
    x = {"name": "x", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "str"}}
    y = {"name": "y", "datatype": "FP32", "shape": []}
    optional_y = {**y, "parameters": {"optional": True}}
    assert service.client.get("/v2/models/test").json == {
        "name": "test",
        "versions": ["1"],
        "platform": "tests",
        "inputs": [x, optional_y],
        "outputs": [x, y],
        "properties": {"framework": "numpy 2", "": "é"},
        "parameters": {"content_type": "np"},
    }

    message = service.grpc.call("ModelMetadata", name="test")
    assert dict(message.properties) == {"framework": "numpy 2", "": "é"}
    tensors = zip((*message.inputs, *message.outputs), (x, optional_y, x, y), strict=True)
    for tensor, expected in tensors:
        assert parameter_values(tensor.parameters) == expected.get("parameters", {})


def test_outputs_of_responses_have_no_optional(serve, form: str) -> None:
    """R6, R8: an output of a response has its content type, but not `optional`, which only metadata contains."""
    response = serve(models.described()).forms[form].infer([("x", "BYTES", [1], [b"a"])])
    text = (
        response.raw.data.decode(errors="replace") if form.startswith("rest") else str(response.raw)
    )
    assert response.is_success, response
    assert response.content_types == {"x": "str"}
    assert "optional" not in text


def test_returns_the_model_configuration(serve) -> None:
    """T1: both transports return the model configuration in Triton's format."""
    service = serve(models.two_by_two())
    expected = {
        "name": "test",
        "platform": "tests",
        "max_batch_size": 0,
        "input": [
            {"name": "a", "data_type": "TYPE_FP32", "dims": [-1, 2], "optional": False},
            {"name": "b", "data_type": "TYPE_INT64", "dims": [-1], "optional": True},
        ],
        "output": [
            {"name": "sum", "data_type": "TYPE_FP32", "dims": [-1]},
            {"name": "double", "data_type": "TYPE_INT64", "dims": [-1]},
        ],
    }
    for path in ("/v2/models/test/config", "/v2/models/test/versions/1/config"):
        assert service.client.get(path).json == expected
    message = service.grpc.call("ModelConfig", name="test", version="1").config
    assert message == messages.ModelConfig(**expected)
    assert "model_configuration" in service.client.get("/v2").json["extensions"]


@pytest.mark.parametrize(
    ("body", "loaded", "state"),
    [
        ('{"ready": null, "more": 1}', True, "READY"),
        ('{"ready": false}', False, "UNAVAILABLE"),
        ("", False, "UNAVAILABLE"),
        ('{"ready": true}', False, None),
    ],
)
def test_repository_index(serve, body: str, loaded: bool, state: str | None) -> None:
    """T2: the index lists the model and its state, or nothing if only ready models are requested."""
    service = serve(models.two_by_two())
    model_state = ModelState.READY if loaded else ModelState.LOADING
    with service.model_state(model_state):
        response = service.client.post("/v2/repository/index", data=body)
        index = service.grpc.call("RepositoryIndex", ready="true" in body)
    reason = "" if loaded else "not ready"
    expected = [{"name": "test", "version": "1", "state": state, "reason": reason}] if state else []
    assert (response.status_code, response.json) == (200, expected)
    assert index == messages.RepositoryIndexResponse(models=expected)
