"""Checks for the members of requests and responses, which REST, gRPC and clients share (R17, R20).

Whole requests are validated by app/rest/schemas.py in the service, and by object_reader.py in a
client.
"""

from typing import Any

from app.protocol.errors import InvalidInput, format_value

JsonObject = dict[str, Any]
MAX_TENSORS = 2**16  # maximum number of inputs, and of outputs, in a request (R20)
# Maximum number of invalid tensors to report. An invalid one takes far more time than a valid one.
MAX_ERRORS = 16

# Parameters that are attributes of Parameters even if they are absent, as in MLServer.
_OPTIONAL_ATTRIBUTES = ("content_type", "headers")


class Parameters(dict[str, Any]):
    """Parameters by name. They are also attributes.

    As in MLServer, the attributes `content_type` and `headers` are None if they are absent.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in _OPTIONAL_ATTRIBUTES:
            return None
        return super().__getattribute__(name)  # raises AttributeError


def check_number_of_tensors(member: str, count: int) -> None:
    """Raise InvalidInput if `member` (inputs or outputs) has more than MAX_TENSORS elements."""
    if count > MAX_TENSORS:
        raise InvalidInput("too many", subject=member, expected=f"at most {MAX_TENSORS}", got=count)


def check_text(value: Any) -> str:
    """Return `value`. Raise InvalidInput if it is not a string."""
    if not isinstance(value, str):
        raise InvalidInput(expected="a string", got=value)
    return value


def check_parameters(value: object) -> JsonObject:
    """Return the parameters of a request without those that are null (R17).

    Raise InvalidInput if a value is not a string, number or boolean.
    """
    if value is None:
        return {}
    parameters = check_response_parameters(value)
    for name, parameter in parameters.items():
        if not isinstance(parameter, (str, int, float)):
            raise parameter_error(name, parameter)
    return parameters


def check_response_parameters(value: object) -> JsonObject:
    """Return the parameters of a response without those that are null.

    A value can also be an object or a list, because some servers send these. Raise InvalidInput if
    `value` is not an object, or if a parameter about binary data is invalid.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(expected="an object", got=format_value(value))
    if None in value.values():
        value = {name: parameter for name, parameter in value.items() if parameter is not None}
    for name, parameter in value.items():
        _check_binary_parameter(name, parameter)
    return value


def _check_binary_parameter(name: str, value: object) -> None:
    """Raise InvalidInput if a parameter about binary data has an invalid value (B2, B6)."""
    if name == "binary_data_size" and (type(value) is not int or value < 0):
        raise parameter_error(name, value, "an integer of at least 0")
    if name in ("binary_data", "binary_data_output") and not isinstance(value, bool):
        raise parameter_error(name, value, "true or false")


def parameter_error(
    name: str, value: object, expected: str = "a string, number or boolean"
) -> InvalidInput:
    """Return the error for a parameter with an invalid value (R17)."""
    return InvalidInput(expected=expected, got=format_value(value)).about("parameter", name)


def to_parameters(value: object) -> Parameters:
    """Return the parameters as Parameters. Raise InvalidInput if they are not an object."""
    if type(value) is Parameters:
        return value
    return Parameters(check_response_parameters(value))
