"""Validation of requests without marshmallow, which takes longer than a small model.

`recognize_request` knows only valid requests. It returns None for all other values, and then the
schemas decide. So every error message comes from the schemas, and the checks here need no details.
The switch `fast_validation` disables this module (docs/optimizations.md).
"""

from typing import Any, TypeGuard

from app.protocol.datatypes import check_shape, datatype_of
from app.protocol.envelope import MAX_TENSORS, JsonObject, check_parameters, check_text
from app.protocol.errors import InvalidInput
from app.rest.schemas import validate_request

_OBJECT_TYPES = {dict}  # in parsed JSON


def validate_fast(payload: Any) -> JsonObject:
    """Return the members of an infer request, as validate_request() does. Raise its exception."""
    request = recognize_request(payload)
    if request is None:
        return validate_request(payload)
    return request


def recognize_request(payload: Any) -> JsonObject | None:
    """Return the members of a valid infer request. Return None for any other value."""
    if not isinstance(payload, dict):
        return None

    request_id = payload.get("id")
    if request_id is not None and not isinstance(request_id, str):
        return None

    inputs = payload.get("inputs")
    outputs = payload.get("outputs")
    if outputs is None:
        outputs = []
    if not _is_list_of_objects(inputs) or not _is_list_of_objects(outputs):
        return None

    try:
        return {
            "id": request_id,
            "parameters": check_parameters(payload.get("parameters")),
            "inputs": [_read_input(tensor) for tensor in inputs],
            "outputs": [_read_output(output) for output in outputs],
        }
    except InvalidInput:
        return None


def _is_list_of_objects(value: Any) -> TypeGuard[list[JsonObject]]:
    if not isinstance(value, list) or len(value) > MAX_TENSORS:
        return False
    return _OBJECT_TYPES.issuperset(map(type, value))


def _read_input(tensor: JsonObject) -> JsonObject:
    """Return the members of an input. Raise InvalidInput if one is invalid or absent."""
    return {
        "name": check_text(tensor.get("name")),
        "shape": check_shape(tensor.get("shape")),
        "datatype": datatype_of(tensor.get("datatype")),
        "parameters": check_parameters(tensor.get("parameters")),
        "data": tensor.get("data"),
    }


def _read_output(output: JsonObject) -> JsonObject:
    """Return the members of a requested output. Raise InvalidInput if one is invalid or absent."""
    return {
        "name": check_text(output.get("name")),
        "parameters": check_parameters(output.get("parameters")),
    }
