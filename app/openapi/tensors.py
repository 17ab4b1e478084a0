"""What is the model's own in its description: its inputs and outputs by name, datatype and shape."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from app.datatypes import datatype_of
from app.openapi.schemas import TEXT, Json, nullable
from app.types import MetadataTensor, ModelMetadata

# What an element is, by the content type, and by the datatype's kind.
TEXTS: dict[str | None, Json] = {
    "base64": {"type": "string", "contentEncoding": "base64"},
    "datetime": {"type": ["string", "null"], "description": "ISO 8601"},
    "pd_json": {"type": ["string", "null"], "contentMediaType": "application/json"},
}
ELEMENTS: dict[str, Json] = {
    "O": {"type": ["string", "null"]},
    "f": {"type": ["number", "null"], "description": "null is NaN"},
    "b": {"type": ["boolean", "integer"], "minimum": 0, "maximum": 1},
}
PARAMETERS: Json = {"type": "object", "properties": {"content_type": TEXT}}


def refine(schemas: dict[str, Json], metadata: ModelMetadata, optional: Container[str]) -> None:
    """Makes the request and the response among `schemas` those of the model."""
    request, response = schemas["InferenceRequest"]["properties"], schemas["InferenceResponse"]["properties"]
    request["inputs"] = inputs(metadata.inputs, optional)
    names = [tensor.name for tensor in metadata.outputs]
    schemas["RequestOutput"]["properties"]["name"] = {"enum": names} if names else False
    response["model_name"], response["model_version"] = {"const": metadata.name}, {"const": metadata.version}
    response["outputs"] = {
        "type": "array",
        "items": either([output(tensor) for tensor in metadata.outputs]),
        "maxItems": len(names),
    }
    for replaced in ("RequestInput", "ResponseOutput"):
        del schemas[replaced]


def inputs(tensors: Sequence[MetadataTensor], optional: Container[str]) -> Json:
    """Each of `tensors` once, in any order; those that are `optional` at most once (R15)."""
    required = [tensor.name for tensor in tensors if tensor.name not in optional]
    made: Json = {
        "type": "array",
        "items": either([request_input(tensor, tensor.name in optional) for tensor in tensors]),
        "minItems": len(required),
        "maxItems": len(tensors),
    }
    if len(tensors) > 1:
        made["allOf"] = [
            {"contains": named(tensor.name), "minContains": int(tensor.name in required), "maxContains": 1}
            for tensor in tensors
        ]
    return made


def named(name: str) -> Json:
    return {"type": "object", "properties": {"name": {"const": name}}, "required": ["name"]}


def either(schemas: list[Json]) -> Json | bool:
    return schemas[0] if len(schemas) == 1 else bool(schemas) and {"oneOf": schemas}


def request_input(tensor: MetadataTensor, is_optional: bool) -> Json:
    each = element(tensor)
    nested = {"type": "array", "items": {"type": "array"}, "description": "The same, nested"}
    members = {
        **head(tensor),
        "parameters": nullable(PARAMETERS),
        "data": {"anyOf": [{"type": "array", "items": each}, nested, each]},
    }
    if tensor.shape in ([-1], [-1, 1]):
        members["shape"] = shape([-1, 1], ranks=(1, 2))
    schema = {"title": tensor.name, "type": "object", "properties": members}
    return {**schema, "required": ["name", "shape", "datatype", "data"], "description": told(tensor, is_optional)}


def output(tensor: MetadataTensor) -> Json:
    members = {
        **head(tensor),
        "parameters": PARAMETERS,
        "data": {"type": "array", "items": element(tensor)},
    }
    schema = {"title": tensor.name, "type": "object", "properties": members, "additionalProperties": False}
    return {**schema, "required": ["name", "shape", "datatype", "data"], "description": told(tensor)}


def head(tensor: MetadataTensor) -> Json:
    return {
        "name": {"const": tensor.name},
        "shape": shape(tensor.shape, ranks=(len(tensor.shape), len(tensor.shape))),
        "datatype": {"const": tensor.datatype},
    }


def told(tensor: MetadataTensor, is_optional: bool = False) -> str:
    """The tensor in a line."""
    words = [tensor.datatype, str(list(tensor.shape))]
    words += [f"content type {tensor.content_type}"] * bool(tensor.content_type) + ["may be left out"] * is_optional
    return ", ".join(words)


def shape(declared: Sequence[int], ranks: tuple[int, int]) -> Json:
    """A shape that fits the one `declared`, of the least and the most dimensions that `ranks` says."""
    dimensions = [{"type": "integer", "minimum": 0} if each == -1 else {"const": each} for each in declared]
    prefix = {"prefixItems": dimensions} if dimensions else {}
    smallest = [1 if each == -1 else each for each in declared[: ranks[0]]]
    return {"type": "array", **prefix, "minItems": ranks[0], "maxItems": ranks[1], "examples": [smallest]}


def element(tensor: MetadataTensor) -> Json:
    datatype = datatype_of(tensor.datatype)
    if datatype.kind in "iu":
        limits = np.iinfo(datatype.dtype)
        return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
    return TEXTS.get(tensor.content_type, ELEMENTS[datatype.kind])
