"""OpenAPI 3.1 description: openapi.json, completed with METADATA."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.inference.model_info import ModelInfo
from app.protocol.datatypes import datatype_of
from app.protocol.envelope import JsonObject
from app.protocol.http_body import JSON
from app.protocol.metadata import MetadataTensor, ModelMetadata

TEMPLATE = Path(__file__).parent / "openapi.json"
MODEL, VERSION = "/v2/models/{name}", "/versions/{version}"
# Schemas of an element: of BYTES by content type, and of the other datatypes.
TEXTS: dict[str | None, JsonObject] = {
    "base64": {"type": "string", "contentEncoding": "base64"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "datetime": {"type": ["string", "null"], "description": "ISO 8601"},
    "pd_json": {"type": ["string", "null"], "contentMediaType": "application/json"},
}
TEXT: JsonObject = {"type": ["string", "null"]}
FLOAT: JsonObject = {"type": ["number", "null"], "description": "null means NaN"}
BOOLEAN: JsonObject = {"type": ["boolean", "integer"], "minimum": 0, "maximum": 1}
PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"content_type": {"type": ["string", "null"]}},
}
NESTED = {"type": "array", "items": {"type": "array"}, "description": "The same data, nested"}


def describe(info: ModelInfo, root: str, has_keys: bool) -> JsonObject:
    """Return the description of the service and its model. `root` is the service's URL, relative to the description."""
    metadata = info.metadata
    description: JsonObject = json.loads(TEMPLATE.read_bytes())
    description["servers"][0]["url"] = root
    description["info"] |= {"title": metadata.name, "version": metadata.version}
    paths, components = description["paths"], description["components"]
    paths[f"{MODEL}/infer"]["post"]["requestBody"]["content"][JSON]["example"] = info.example()
    model = info.model_metadata(metadata.name, metadata.version)
    paths[MODEL]["get"]["responses"]["200"]["content"][JSON]["example"] = model
    if not has_keys:
        del description["security"], components["securitySchemes"]
    paths |= {
        path.replace(MODEL, MODEL + VERSION): add_version(paths[path])
        for path in paths
        if MODEL in path
    }
    for name, value in (("name", metadata.name), ("version", metadata.version)):
        components["parameters"][name] |= {"schema": {"const": value}, "example": value}
    apply_metadata(components["schemas"], metadata)
    return description


def add_version(item: JsonObject) -> JsonObject:
    """Return the operations of a model path for the same path with a version."""
    parameter = {"$ref": "#/components/parameters/version"}
    return {
        method: {
            **operation,
            "operationId": f"{operation['operationId']}_of_version",
            "parameters": [*operation["parameters"], parameter],
        }
        for method, operation in item.items()
    }


def apply_metadata(schemas: dict[str, JsonObject], metadata: ModelMetadata) -> None:
    """Replace the generic schemas of inputs and outputs with those of the model."""
    request, response = (
        schemas["InferenceRequest"]["properties"],
        schemas["InferenceResponse"]["properties"],
    )
    request["inputs"] = inputs_schema(metadata.inputs)
    names = [tensor.name for tensor in metadata.outputs]
    schemas["RequestOutput"]["properties"]["name"] = {"enum": names} if names else False
    response["model_name"], response["model_version"] = (
        {"const": metadata.name},
        {"const": metadata.version},
    )
    outputs = [
        tensor_schema(tensor) | {"additionalProperties": False} for tensor in metadata.outputs
    ]
    response["outputs"] = {"type": "array", "items": one_of(outputs), "maxItems": len(names)}


def inputs_schema(tensors: Sequence[MetadataTensor]) -> JsonObject:
    """Return the schema of a list with each input once, in any order. Optional inputs may be missing (R15)."""
    required = [tensor.name for tensor in tensors if not tensor.optional]
    items = one_of([input_schema(tensor) for tensor in tensors])
    schema: JsonObject = {
        "type": "array",
        "items": items,
        "minItems": len(required),
        "maxItems": len(tensors),
    }
    if len(tensors) > 1:
        schema["allOf"] = [
            {
                "contains": {
                    "type": "object",
                    "properties": {"name": {"const": tensor.name}},
                    "required": ["name"],
                },
                "minContains": int(tensor.name in required),
                "maxContains": 1,
            }
            for tensor in tensors
        ]
    return schema


def one_of(schemas: list[JsonObject]) -> JsonObject | bool:
    return schemas[0] if len(schemas) == 1 else bool(schemas) and {"oneOf": schemas}


def input_schema(tensor: MetadataTensor) -> JsonObject:
    schema = tensor_schema(tensor)
    members, element = schema["properties"], element_schema(tensor)
    members["parameters"] = {**PARAMETERS, "type": ["object", "null"]}
    members["data"] = {"anyOf": [members["data"], NESTED, element]}
    if tensor.shape in ([-1], [-1, 1]):
        members["shape"] = shape_schema([-1, 1], ranks=(1, 2))  # R15: [N] and [N,1] are equivalent
    if tensor.optional:
        schema["description"] += ", optional"
    return schema


def tensor_schema(tensor: MetadataTensor) -> JsonObject:
    """Return the schema of the tensor in a response."""
    content_type = f", content type {tensor.content_type}" if tensor.content_type else ""
    return {
        "title": tensor.name,
        "type": "object",
        "properties": {
            "name": {"const": tensor.name},
            "shape": shape_schema(tensor.shape, ranks=(len(tensor.shape), len(tensor.shape))),
            "datatype": {"const": tensor.datatype},
            "parameters": PARAMETERS,
            "data": {"type": "array", "items": element_schema(tensor)},
        },
        "required": ["name", "shape", "datatype", "data"],
        "description": f"{tensor.datatype}, {list(tensor.shape)}{content_type}",
    }


def shape_schema(declared: Sequence[int], ranks: tuple[int, int]) -> JsonObject:
    """Return the schema of a shape that matches `declared` and has from `ranks[0]` to `ranks[1]` dimensions."""
    dimensions = [
        {"type": "integer", "minimum": 0} if each == -1 else {"const": each} for each in declared
    ]
    prefix = {"prefixItems": dimensions} if dimensions else {}
    smallest = [1 if each == -1 else each for each in declared[: ranks[0]]]
    return {
        "type": "array",
        **prefix,
        "minItems": ranks[0],
        "maxItems": ranks[1],
        "examples": [smallest],
    }


def element_schema(tensor: MetadataTensor) -> JsonObject:
    datatype = datatype_of(tensor.datatype)
    if datatype.is_integer:
        limits = np.iinfo(datatype.dtype)
        return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
    if datatype.is_float:
        return FLOAT
    if datatype.is_boolean:
        return BOOLEAN
    return TEXTS.get(tensor.content_type, TEXT)
