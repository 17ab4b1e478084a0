"""Rules for metadata, model configuration and the repository index, on both transports."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from oip_conformance import messages
from oip_conformance.values import VALUES
from oip_conformance.wires import error_message, plain
from tests.kit import models
from tests.kit.service import Service


def metadata_of(service: Service) -> dict[str, Any]:
    """Return the metadata over REST, after a check that gRPC returns the same, except for the members it lacks."""
    rest = service.client.get("/v2/models/test").json
    message = service.grpc.call("ModelMetadata", name="test", version="1")
    found = {"name": message.name, "versions": list(message.versions), "platform": message.platform}
    for member in ("inputs", "outputs"):
        found[member] = []
        for tensor in getattr(message, member):
            head = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
            parameters = plain(tensor.parameters)
            found[member].append({**head, "parameters": parameters} if parameters else head)
    if message.properties:
        found["properties"] = dict(message.properties)
    assert found == {name: value for name, value in rest.items() if name != "parameters"}
    return rest


def test_model_metadata_is_the_same_on_both_transports(service) -> None:
    """R6, G1: both transports return the same model metadata, without members that are not declared."""
    assert metadata_of(service) == {
        "name": "test",
        "versions": ["1"],
        "platform": "tests",
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "b", "datatype": "INT64", "shape": [-1], "parameters": {"optional": True}},
        ],
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [-1]},
            {"name": "double", "datatype": "INT64", "shape": [-1]},
        ],
    }


def test_model_metadata_contains_declared_parameters_and_properties(serve) -> None:
    """R6: both transports return content types, `optional` and properties. REST returns the request's content type."""
    x = {"name": "x", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "str"}}
    y = {"name": "y", "datatype": "FP32", "shape": []}
    assert metadata_of(serve(models.described(), model_version="1")) == {
        "name": "test",
        "versions": ["1"],
        "platform": "tests",
        "inputs": [x, {**y, "parameters": {"optional": True}}],
        "outputs": [x, y],
        "properties": {"framework": "numpy 2", "": "é"},
        "parameters": {"content_type": "np"},
    }


def test_outputs_of_responses_have_no_optional(serve, form: str) -> None:
    """R6, R8: an output of a response has its content type, but not `optional`, which only metadata contains."""
    response = serve(models.described()).forms[form].infer([("x", "BYTES", [1], [b"a"])])
    text = (
        response.raw.data.decode(errors="replace") if form.startswith("rest") else str(response.raw)
    )
    assert (response.kind, response.content_types) == ("ok", {"x": "str"})
    assert "optional" not in text


def test_server_metadata_is_the_same_on_both_transports(service) -> None:
    """R4, G1: both transports return the same server metadata."""
    rest = json.loads(service.client.get("/v2").data)
    message = service.grpc.call("ServerMetadata")
    assert rest == {
        "name": message.name,
        "version": message.version,
        "extensions": list(message.extensions),
    }
    assert "binary_tensor_data" in rest["extensions"]


def test_returns_the_model_configuration(service) -> None:
    """T1: both transports return the model configuration in Triton's format."""
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


def test_model_configuration_of_an_unknown_model(service) -> None:
    """T1, R3: an unknown model is not found, with the same message on both transports."""
    text = error_message(service.client.get("/v2/models/Test/config"), 404)
    with pytest.raises(grpc.RpcError) as caught:
        service.grpc.call("ModelConfig", name="Test")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, text)


@pytest.mark.parametrize("datatype", VALUES)
def test_model_configuration_uses_triton_datatypes(echoes, datatype: str) -> None:
    """T1: each datatype has Triton's name, the same on both transports."""
    expected = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    service = echoes(datatype)
    assert service.client.get("/v2/models/test/config").json["input"][0]["data_type"] == expected
    tensor = service.grpc.call("ModelConfig", name="test").config.input[0]
    assert (
        tensor.DESCRIPTOR.fields_by_name["data_type"]
        .enum_type.values_by_number[tensor.data_type]
        .name
        == expected
    )


@pytest.mark.parametrize(
    ("body", "loaded", "state"),
    [
        ("", True, "READY"),
        ("{}", True, "READY"),
        ('{"ready": null, "more": 1}', True, "READY"),
        ('{"ready": true}', True, "READY"),
        ('{"ready": false}', False, "UNAVAILABLE"),
        ("", False, "UNAVAILABLE"),
        ('{"ready": true}', False, None),
    ],
)
def test_repository_index(serve, body: str, loaded: bool, state: str | None) -> None:
    """T2: the index lists the model and its state, or nothing if only ready models are requested."""
    service = serve(models.two_by_two())
    service.plane.is_warm = loaded
    response = service.client.post("/v2/repository/index", data=body)
    reason = "" if loaded else "not ready"
    expected = [{"name": "test", "version": "1", "state": state, "reason": reason}] if state else []
    assert (response.status_code, response.json) == (200, expected)
    index = service.grpc.call("RepositoryIndex", ready="true" in body)
    assert index == messages.RepositoryIndexResponse(models=expected)


@pytest.mark.parametrize("body", ["[]", "null", "{", '{"ready": 1}', '{"ready": "true"}', "true"])
def test_rejects_invalid_repository_index_requests(service, body: str) -> None:
    """T2, R19: an invalid body of a repository index request is rejected."""
    assert error_message(service.client.post("/v2/repository/index", data=body), 400)
