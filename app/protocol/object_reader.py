"""Reader for the JSON of requests and responses in a client, which does not need marshmallow.

InferenceRequest.from_dict() and InferenceResponse.from_dict() use it. For a request, its errors
equal those of the service, which validates with app/rest/schemas.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.protocol.datatypes import DATATYPES, check_shape, datatype_of
from app.protocol.envelope import (
    MAX_ERRORS,
    JsonObject,
    check_number_of_tensors,
    check_parameters,
    check_response_parameters,
    check_text,
)
from app.protocol.errors import InferenceError, InvalidInput, InvalidRequest, format_value


class Member(NamedTuple):
    """A member of a JSON object.

    - name: its name in JSON.
    - check: a function that validates and converts a value other than null.
    - expected: the valid values of a required member. Other members can be null.
    """

    name: str
    check: Callable[[Any], Any]
    expected: str = ""


def read_request(payload: Any) -> JsonObject:
    """Return the members of an infer request, with None for absent ones.

    `datatype` becomes a Datatype. Raise InvalidRequest with all errors.
    """
    return _read_object(payload, REQUEST, "request")


def read_response(payload: Any) -> JsonObject:
    """Return the members of an infer response, as read_request() does.

    If it is the response of a failed request, raise InferenceError with the server's message.
    """
    if isinstance(payload, dict) and payload.get("error") is not None:
        raise InferenceError(str(payload["error"]))
    return _read_object(payload, RESPONSE, "response")


def _read_object(payload: Any, members: Sequence[Member], subject: str = "") -> JsonObject:
    """Return the members of an object, without unknown ones. Raise InvalidRequest."""
    if not isinstance(payload, dict):
        error = InvalidInput(subject=subject, expected="an object", got=format_value(payload))
        raise InvalidRequest([error])

    valid: JsonObject = {}
    errors: list[InvalidInput] = []
    for name, check, expected in members:
        value = payload.get(name)
        if value is None:
            valid[name] = None
            if expected:
                errors.append(_absent_member(payload, name, expected))
            continue
        try:
            valid[name] = check(value)
        except InvalidRequest as error:
            errors += error.errors
        except InvalidInput as error:
            if error.path:
                errors.append(error)
            else:  # the check does not know the name of the member
                errors.append(error.about(name))

    if errors:
        raise InvalidRequest(errors)
    return valid


def _absent_member(payload: JsonObject, name: str, expected: str) -> InvalidInput:
    """Return the error for a required member that is null or absent."""
    if name in payload:
        return InvalidInput(subject=name, expected=expected, got="null")
    return InvalidInput(f"missing {name}", expected=expected)


def _read_request_inputs(value: Any) -> list[JsonObject]:
    return _read_tensors(value, "input", REQUEST_INPUT, TENSORS)


def _read_request_outputs(value: Any) -> list[JsonObject]:
    return _read_tensors(value, "output", REQUEST_OUTPUT, "a list of outputs with name")


def _read_response_outputs(value: Any) -> list[JsonObject]:
    return _read_tensors(value, "output", RESPONSE_OUTPUT, TENSORS)


def _read_tensors(
    value: Any, kind: str, members: Sequence[Member], expected: str
) -> list[JsonObject]:
    """Return the tensors of a list. Raise InvalidRequest for the first MAX_ERRORS invalid ones."""
    if not isinstance(value, list):
        raise InvalidInput(expected=expected, got=format_value(value))
    check_number_of_tensors(f"{kind}s", len(value))

    tensors: list[JsonObject] = []
    errors: list[InvalidInput] = []
    invalid_tensors = 0
    for index, tensor in enumerate(value):
        try:
            tensors.append(_read_object(tensor, members))
        except InvalidRequest as error:
            name = tensor.get("name") if isinstance(tensor, dict) else None
            for tensor_error in error.errors:
                if isinstance(name, str):
                    errors.append(tensor_error.about(kind, name))
                else:
                    errors.append(tensor_error.about(f"{kind}s[{index}]"))
            invalid_tensors += 1
            if invalid_tensors == MAX_ERRORS:
                break

    if errors:
        raise InvalidRequest(errors)
    return tensors


def _any_value(value: Any) -> Any:
    return value


TENSORS = "a list of tensors with name, shape, datatype and data"
_NAME = Member("name", check_text, "a string")
_SHAPE = Member("shape", check_shape, "a list of integers")
_DATATYPE = Member("datatype", datatype_of, f"one of {', '.join(DATATYPES)}")
_PARAMETERS = Member("parameters", check_parameters)
_RESPONSE_PARAMETERS = Member("parameters", check_response_parameters)
_DATA = Member("data", _any_value)  # checked later, when it becomes an array

REQUEST_INPUT = (_NAME, _SHAPE, _DATATYPE, _PARAMETERS, _DATA)
REQUEST_OUTPUT = (_NAME, _PARAMETERS)
REQUEST = (
    Member("id", check_text),
    _PARAMETERS,
    Member("inputs", _read_request_inputs, TENSORS),
    Member("outputs", _read_request_outputs),
)
RESPONSE_OUTPUT = (_NAME, _SHAPE, _DATATYPE, _RESPONSE_PARAMETERS, _DATA)
RESPONSE = (
    Member("model_name", _any_value),
    Member("model_version", _any_value),
    Member("id", _any_value),
    _RESPONSE_PARAMETERS,
    Member("outputs", _read_response_outputs, TENSORS),
)
