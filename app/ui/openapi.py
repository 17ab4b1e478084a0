"""OpenAPI 3.1 description: openapi.json, completed with METADATA.

openapi.json describes every service. Its schemas of inputs and outputs are replaced by those of the
served model, and each path of a model is repeated with a version.
"""

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
MODEL_PATH = "/v2/models/{name}"
VERSION_PATH = f"{MODEL_PATH}/versions/{{version}}"
# Schemas of an element of BYTES by content type, and of an element of other datatypes.
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
OPTIONAL_PARAMETERS: JsonObject = {**PARAMETERS, "type": ["object", "null"]}
NESTED = {"type": "array", "items": {"type": "array"}, "description": "The same data, nested"}
# Inputs with one value per row. [N] and [N,1] are equivalent (R15).
COLUMN_SHAPES = ([-1], [-1, 1])


def describe(info: ModelInfo, root: str, has_keys: bool) -> JsonObject:
    """Return the description of the service and its model.

    `root` is the service's URL, relative to the description. `has_keys` is True if the service
    requires API keys.
    """
    metadata = info.metadata
    description: JsonObject = json.loads(TEMPLATE.read_bytes())
    description["servers"][0]["url"] = root
    description["info"]["title"] = metadata.name
    description["info"]["version"] = metadata.version

    components = description["components"]
    if not has_keys:
        del description["security"]
        del components["securitySchemes"]
    _set_only_value(components["parameters"]["name"], metadata.name)
    _set_only_value(components["parameters"]["version"], metadata.version)
    _apply_metadata(components["schemas"], metadata)

    paths = description["paths"]
    infer_request = paths[f"{MODEL_PATH}/infer"]["post"]["requestBody"]
    infer_request["content"][JSON]["example"] = info.example()
    model_response = paths[MODEL_PATH]["get"]["responses"]["200"]
    model_response["content"][JSON]["example"] = metadata.describe()
    # The copies include the examples.
    _add_paths_with_version(paths)
    return description


def _set_only_value(parameter: JsonObject, value: str) -> None:
    """Describe a parameter of a path that has only one valid value."""
    parameter["schema"] = {"const": value}
    parameter["example"] = value


def _add_paths_with_version(paths: dict[str, JsonObject]) -> None:
    """Add a path with a version for each path of a model."""
    for path, item in list(paths.items()):
        if MODEL_PATH in path:
            versioned_path = path.replace(MODEL_PATH, VERSION_PATH)
            paths[versioned_path] = _add_version(item)


def _add_version(item: JsonObject) -> JsonObject:
    """Return the operations of a path for the same path with a version."""
    version = {"$ref": "#/components/parameters/version"}
    operations = {}
    for method, operation in item.items():
        versioned_operation = dict(operation)
        versioned_operation["operationId"] += "_of_version"
        versioned_operation["parameters"] = [*operation["parameters"], version]
        operations[method] = versioned_operation
    return operations


def _apply_metadata(schemas: dict[str, JsonObject], metadata: ModelMetadata) -> None:
    """Replace the generic schemas of inputs and outputs with those of the model."""
    request = schemas["InferenceRequest"]["properties"]
    request["inputs"] = _inputs_schema(metadata.inputs)
    requested_output = schemas["RequestOutput"]["properties"]
    requested_output["name"] = _name_schema(metadata.outputs)

    response = schemas["InferenceResponse"]["properties"]
    response["model_name"] = {"const": metadata.name}
    response["model_version"] = {"const": metadata.version}
    response["outputs"] = _outputs_schema(metadata.outputs)


def _name_schema(tensors: Sequence[MetadataTensor]) -> JsonObject | bool:
    """Return the schema of a tensor's name. Without tensors, no name is valid."""
    if not tensors:
        return False
    return {"enum": [tensor.name for tensor in tensors]}


def _inputs_schema(tensors: Sequence[MetadataTensor]) -> JsonObject:
    """Return the schema of a list with each input once, in any order.

    Optional inputs may be missing (R15).
    """
    items = []
    occurrences = []
    min_count = 0
    for tensor in tensors:
        items.append(_input_schema(tensor))
        occurrences.append(_occurrence_schema(tensor))
        if not tensor.optional:
            min_count += 1
    schema = _array_schema(_one_of(items))
    schema["minItems"] = min_count
    schema["maxItems"] = len(tensors)
    if len(tensors) > 1:
        schema["allOf"] = occurrences
    return schema


def _occurrence_schema(tensor: MetadataTensor) -> JsonObject:
    """Return the schema of a list that contains the input at most once, or once if it is
    required.
    """
    input_with_name = {
        "type": "object",
        "properties": {"name": {"const": tensor.name}},
        "required": ["name"],
    }
    min_count = 0 if tensor.optional else 1
    return {"contains": input_with_name, "minContains": min_count, "maxContains": 1}


def _outputs_schema(tensors: Sequence[MetadataTensor]) -> JsonObject:
    """Return the schema of a list of outputs. A request selects outputs, so each may be missing."""
    items = []
    for tensor in tensors:
        schema = _tensor_schema(tensor)
        schema["additionalProperties"] = False
        items.append(schema)
    array = _array_schema(_one_of(items))
    array["maxItems"] = len(tensors)
    return array


def _array_schema(items: JsonObject | bool) -> JsonObject:
    return {"type": "array", "items": items}


def _one_of(schemas: list[JsonObject]) -> JsonObject | bool:
    """Return a schema that matches exactly one of `schemas`. Without any, it matches nothing."""
    if not schemas:
        return False
    if len(schemas) == 1:
        return schemas[0]
    return {"oneOf": schemas}


def _input_schema(tensor: MetadataTensor) -> JsonObject:
    """Return the schema of the tensor in a request, which has more forms than in a response."""
    schema = _tensor_schema(tensor)
    properties = schema["properties"]
    properties["parameters"] = OPTIONAL_PARAMETERS
    flat_list = properties["data"]
    element = _element_schema(tensor)
    properties["data"] = {"anyOf": [flat_list, NESTED, element]}
    if tensor.shape in COLUMN_SHAPES:
        properties["shape"] = _shape_schema([-1, 1], min_rank=1)
    if tensor.optional:
        schema["description"] += ", optional"
    return schema


def _tensor_schema(tensor: MetadataTensor) -> JsonObject:
    """Return the schema of the tensor in a response."""
    description = f"{tensor.datatype}, {tensor.shape}"
    if tensor.content_type:
        description += f", content type {tensor.content_type}"
    properties = {
        "name": {"const": tensor.name},
        "shape": _shape_schema(tensor.shape, min_rank=len(tensor.shape)),
        "datatype": {"const": tensor.datatype},
        "parameters": PARAMETERS,
        "data": _array_schema(_element_schema(tensor)),
    }
    return {
        "title": tensor.name,
        "type": "object",
        "properties": properties,
        "required": ["name", "shape", "datatype", "data"],
        "description": description,
    }


def _shape_schema(declared: Sequence[int], min_rank: int) -> JsonObject:
    """Return the schema of a shape that matches `declared`, of which the first `min_rank`
    dimensions are required.
    """
    dimensions = []
    smallest_shape = []
    for size in declared:
        if size == -1:
            dimensions.append({"type": "integer", "minimum": 0})
            smallest_shape.append(1)
        else:
            dimensions.append({"const": size})
            smallest_shape.append(size)

    schema: JsonObject = {"type": "array"}
    if dimensions:
        schema["prefixItems"] = dimensions
    schema["minItems"] = min_rank
    schema["maxItems"] = len(declared)
    schema["examples"] = [smallest_shape[:min_rank]]
    return schema


def _element_schema(tensor: MetadataTensor) -> JsonObject:
    datatype = datatype_of(tensor.datatype)
    if datatype.is_integer:
        limits = np.iinfo(datatype.dtype)
        return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
    if datatype.is_float:
        return FLOAT
    if datatype.is_boolean:
        return BOOLEAN
    return TEXTS.get(tensor.content_type, TEXT)
