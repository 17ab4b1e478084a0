"""Validation of the JSON objects of requests and responses, except for the data of tensors (R7, R8, R17)."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from app.protocol.datatypes import DATATYPES, check_shape, datatype_of
from app.protocol.errors import InferenceError, InvalidInput, InvalidRequest, format_value

JsonObject = dict[str, Any]
Read = Callable[[Any], Any]
# Members of an object by name: a function that validates and converts the value, and the expected value of a required
# member. Other members can be null.
Members = dict[str, tuple[Read, str]]
MAX_TENSORS = 2**16  # maximum number of inputs, and of outputs, in a request (R20)
MAX_ERRORS = (
    16  # maximum number of reported errors. An error takes far more time than a valid object
)


class Parameters(dict[str, Any]):
    """Parameters by name. They are also attributes. `content_type` and `headers` are None if absent, as in MLServer."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        is_known = name in self or name in ("content_type", "headers")
        return self.get(name) if is_known else super().__getattribute__(name)


def check_number_of_tensors(member: str, count: int) -> None:
    """Raise InvalidInput if `member` (inputs or outputs) has more than MAX_TENSORS elements."""
    if count > MAX_TENSORS:
        raise InvalidInput("too many", subject=member, expected=f"at most {MAX_TENSORS}", got=count)


def parameter_error(
    name: str, value: object, expected: str = "a string, number or boolean"
) -> InvalidInput:
    """Return the error for a parameter with an invalid value (R17)."""
    return InvalidInput(expected=expected, got=format_value(value)).about("parameter", name)


def check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(expected="a string", got=value)
    return value


def check_parameters(value: object, are_simple: bool = True) -> JsonObject:
    """Return the parameters without those that are null (R17). Raise InvalidInput if one is not valid.

    If `are_simple`, the values must be strings, numbers and booleans. Some servers send others in their responses.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(expected="an object", got=format_value(value))
    if None in value.values():
        value = {name: each for name, each in value.items() if each is not None}
    for name, each in value.items():
        if name == "binary_data_size" and (type(each) is not int or each < 0):
            raise parameter_error(name, each, "an integer of at least 0")
        if name in ("binary_data", "binary_data_output") and not isinstance(each, bool):
            raise parameter_error(name, each, "true or false")
        if are_simple and not isinstance(each, (str, int, float)):
            raise parameter_error(name, each)
    return value


def to_parameters(value: object) -> Parameters:
    """Return the parameters as Parameters. Raise InvalidInput if they are not an object."""
    return (
        value
        if type(value) is Parameters
        else Parameters(check_parameters(value, are_simple=False))
    )


def missing_member(value: JsonObject, name: str, expected: str) -> InvalidInput:
    """Return the error for a required member that is null or absent."""
    if name in value:
        return InvalidInput(subject=name, expected=expected, got="null")
    return InvalidInput(f"missing {name}", expected=expected)


def read_object(members: Members, value: Any, kind: str = "") -> JsonObject:
    """Return the members of an object, without unknown ones. Raise InvalidRequest with all errors."""
    if not isinstance(value, dict):
        raise InvalidRequest(
            [InvalidInput(subject=kind, expected="an object", got=format_value(value))]
        )
    valid: JsonObject = {}
    errors: list[InvalidInput] = []
    for name, (read, expected) in members.items():
        sent = value.get(name)
        try:
            valid[name] = None if sent is None else read(sent)
        except InvalidRequest as error:
            errors += error.errors
        except InvalidInput as error:
            errors.append(error if error.path else error.about(name))
        if sent is None and expected:
            errors.append(missing_member(value, name, expected))
    if errors:
        raise InvalidRequest(errors)
    return valid


def read_list(kind: str, members: Members, value: Any) -> list[JsonObject]:
    """Read the objects of a list. Raise InvalidRequest with the errors of at most MAX_ERRORS objects."""
    if not isinstance(value, list):
        raise InvalidInput(expected="a list", got=format_value(value))
    check_number_of_tensors(f"{kind}s", len(value))
    valid, errors = [], []
    for index, each in enumerate(value):
        try:
            valid.append(read_object(members, each))
        except InvalidRequest as error:
            name = each.get("name") if isinstance(each, dict) else None
            subject = (kind, name) if isinstance(name, str) else (f"{kind}s[{index}]",)
            errors.append([found.about(*subject) for found in error.errors])
            if len(errors) == MAX_ERRORS:
                break
    if errors:
        raise InvalidRequest(list(chain(*errors)))
    return valid


def raise_error(message: object) -> NoReturn:
    """Raise InferenceError with the error message of a response."""
    raise InferenceError(str(message))


TENSORS = "a list of tensors with name, shape, datatype and data"
ANY: tuple[Read, str] = (lambda value: value, "")
REQUEST_OUTPUT: Members = {"parameters": (check_parameters, ""), "name": (check_text, "a string")}
REQUEST_INPUT: Members = {
    **REQUEST_OUTPUT,
    "shape": (check_shape, "a list of integers"),
    "datatype": (datatype_of, f"one of {', '.join(DATATYPES)}"),
    "data": ANY,
}
REQUEST: Members = {
    "parameters": (check_parameters, ""),
    "id": (check_text, ""),
    "inputs": (partial(read_list, "input", REQUEST_INPUT), TENSORS),
    "outputs": (partial(read_list, "output", REQUEST_OUTPUT), ""),
}
RESPONSE_OUTPUT: Members = {
    **REQUEST_INPUT,
    "parameters": (partial(check_parameters, are_simple=False), ""),
}
RESPONSE: Members = {
    "error": (raise_error, ""),
    "parameters": RESPONSE_OUTPUT["parameters"],
    **dict.fromkeys(["id", "model_name", "model_version"], ANY),
    "outputs": (partial(read_list, "output", RESPONSE_OUTPUT), TENSORS),
}
