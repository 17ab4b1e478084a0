"""The schemas of bodies: marshmallow's of what comes in, and what goes out beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow.fields import Field

from app.datatypes import DATATYPES, MAX_RANK, check_shape, datatype_of
from app.repository import data_type
from app.schemas import Checked, InferenceRequestSchema, parameters, text, untouched

Json = dict[str, Any]


def ref(name: str, kind: str = "schemas") -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
SHAPE = {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": MAX_RANK}
DECLARED_SHAPE = {"type": "array", "items": {"type": "integer", "minimum": -1}, "description": "-1 is of any size"}
PARAMETERS = {
    "type": "object",
    "properties": {
        "content_type": {**TEXT, "description": "Of the request or an input: how it is decoded, such as str or pd"},
        "binary_data_size": {
            "type": "integer",
            "minimum": 0,
            "description": "Of an input: its data are so many bytes behind the JSON",
        },
        "binary_data": {**FLAG, "description": "Of an output: whether it comes as bytes"},
        "binary_data_output": {**FLAG, "description": "Of the request: whether all outputs come as bytes"},
    },
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
DATA = {
    "description": "The elements in row-major order, flat or nested; a bare one counts too. null is NaN",
    "type": ["array", "string", "number", "boolean"],
}
# What the functions that check a field take.
CHECKED: dict[Callable[[Any], Any], Json] = {
    text: TEXT,
    check_shape: SHAPE,
    datatype_of: ref("Datatype"),
    parameters: ref("Parameters"),
    untouched: DATA,
}


def closed(required: Json, **optional: Json) -> Json:
    """An object of just these members."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def several(item: Json) -> Json:
    return {"type": "array", "items": item}


TENSORS = several(ref("MetadataTensor"))
CONFIG_TENSOR = {"name": TEXT, "data_type": {"enum": [data_type(each) for each in DATATYPES]}, "dims": DECLARED_SHAPE}
STATE = {"enum": ["READY", "UNAVAILABLE"]}
SCHEMAS: dict[str, Json] = {
    "Error": closed({"error": TEXT}),
    "ServerMetadata": closed({"name": TEXT, "version": TEXT, "extensions": several(TEXT)}),
    "Live": closed({"live": FLAG}),
    "Ready": closed({"live": FLAG, "ready": FLAG}),
    "ModelReady": closed({"name": TEXT, "ready": FLAG}),
    "ModelMetadata": closed(
        {"name": TEXT, "versions": several(TEXT), "platform": TEXT, "inputs": TENSORS, "outputs": TENSORS}
    ),
    "MetadataTensor": closed(
        {"name": TEXT, "datatype": ref("Datatype"), "shape": DECLARED_SHAPE}, parameters=ref("Parameters")
    ),
    "ModelConfig": closed(
        {
            "name": TEXT,
            "platform": TEXT,
            "max_batch_size": {"const": 0},
            "input": several(closed({**CONFIG_TENSOR, "optional": FLAG})),
            "output": several(closed(CONFIG_TENSOR)),
        }
    ),
    "RepositoryIndex": several(closed({"name": TEXT, "version": TEXT, "state": STATE, "reason": TEXT})),
    "IndexRequest": {"type": "object", "properties": {"ready": {"type": ["boolean", "null"]}}},
    "InferenceResponse": closed(
        {"model_name": TEXT, "model_version": TEXT, "outputs": several(ref("ResponseOutput"))},
        id=TEXT,
        parameters=ref("Parameters"),
    ),
    "ResponseOutput": closed(
        {"name": TEXT, "shape": SHAPE, "datatype": ref("Datatype"), "data": several({})}, parameters=ref("Parameters")
    ),
    "Datatype": {"enum": list(DATATYPES)},
    "Parameters": PARAMETERS,
}


def add_schemas(spec: APISpec, plugin: MarshmallowPlugin) -> None:
    """Puts all schemas among the components of `spec`, which `plugin` is one of."""
    converter: Any = plugin.converter
    converter.add_attribute_function(checked)
    for name, schema in SCHEMAS.items():
        spec.components.schema(name, schema)
    spec.components.schema("InferenceRequest", schema=InferenceRequestSchema)


def checked(converter: Any, field: Field, ret: Json) -> Json:
    """What the wire has for a field that a function checks, as apispec asks for it."""
    if not isinstance(field, Checked):
        return {}
    return nullable(CHECKED[field.check]) if field.allow_none else CHECKED[field.check]


def nullable(schema: Json) -> Json:
    if isinstance(kind := schema.get("type"), str):
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}
