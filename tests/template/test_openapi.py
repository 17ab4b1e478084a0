"""The OpenAPI descriptions, checked with independent tools."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from app import create_app
from app.protocol.metadata import MetadataTensor
from tests.kit import models

TYPED = [
    ("datetime", "BYTES", [-1], "datetime"),
    ("base64", "BYTES", [-1, 1], "base64"),
    ("bytes", "BYTES", [-1], "bytes"),
    ("cells", "BYTES", [-1], "pd_json"),
    ("flags", "BOOL", [2, 2], None),
    ("scalar", "UINT64", [], None),
    ("no letters at all: ∅", "FP16", [-1, 0], None),
]


def typed() -> Any:
    """Return a model that echoes tensors of many kinds, with a predict() that takes all inputs as a dict."""

    def predict(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    tensors = [MetadataTensor(*declaration) for declaration in TYPED]
    return models.model(tensors, tensors, predict)


def with_example() -> Any:
    module = models.two_by_two()
    module.EXAMPLE = {"b": [3], "a": [[0.5, float("nan")]]}
    return module


DESCRIBED = ["/v2", "/v2/models/test", "/v2/models/test/versions/1"]
INFER = "/v2/models/{name}/infer"
MODELS = [
    *(models.two_by_two, models.several, models.halves, models.described, typed, with_example),
    lambda: models.echo("BYTES", [-1, 1]),
]


def validator(description: dict[str, Any], name: str) -> Draft202012Validator:
    return Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": description["components"]}
    )


@pytest.mark.parametrize("make", MODELS)
def test_descriptions_are_valid(make) -> None:
    """R6: the descriptions are valid OpenAPI 3.1. The metadata, the example and its response match them."""
    client = create_app(module=make()).test_client()
    metadata = client.get("/v2/models/test").json
    for of in DESCRIBED:
        description = client.get(f"{of}/docs/openapi.json").json
        assert not list(OpenAPIV31SpecValidator(description).iter_errors())
        example = description["paths"][INFER]["post"]["requestBody"]["content"]["application/json"][
            "example"
        ]
        validator(description, "ModelMetadata").validate(metadata)
        response = description["paths"]["/v2/models/{name}"]["get"]["responses"]["200"]
        assert response["content"]["application/json"]["example"] == metadata
        validator(description, "InferenceRequest").validate(example)
        response = client.post("/v2/models/test/infer", json=example).json
        validator(description, "InferenceResponse").validate(response)


def a(**others: Any) -> dict[str, Any]:
    return {"name": "a", "shape": [1, 2], "datatype": "FP32", "data": [1, 2], **others}


def b(**others: Any) -> dict[str, Any]:
    return {"name": "b", "shape": [1], "datatype": "INT64", "data": [1], **others}


@pytest.mark.parametrize(
    ("inputs", "status"),
    [
        ([a()], 200),
        ([b(), a()], 200),
        ([a(data=[[1, None]]), b(shape=[1, 1], data=[[1.0]])], 200),
        ([a(), b(shape=[], data=1)], 400),
        ([b()], 400),
        ([], 400),
        ([a(), a()], 400),
        ([a(), b(), b()], 400),
        ([a(), {**b(), "name": "c"}], 400),
        ([a(shape=[1, 3], data=[1, 2, 3])], 400),
        ([a(shape=[2], data=[1, 2])], 400),
        ([a(datatype="FP64")], 400),
        ([a(data=["1", "2"])], 400),
        ([a(), b(data=[1.5])], 400),
        ([a(), b(data=[2**63])], 400),
        ([a(), b(parameters={"content_type": None, "headers": None})], 200),
        ([a(), b(parameters={"content_type": []})], 400),
    ],
)
def test_description_matches_service(inputs: list[dict[str, Any]], status: int) -> None:
    """The model's schema and the service accept and reject the same requests."""
    client = create_app(module=models.two_by_two()).test_client()
    assert client.post("/v2/models/test/infer", json={"inputs": inputs}).status_code == status
    schema = validator(client.get("/v2/models/test/docs/openapi.json").json, "InferenceRequest")
    assert schema.is_valid({"inputs": inputs}) == (status == 200)
