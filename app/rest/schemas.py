"""marshmallow schemas for the envelope of REST requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, cast

from marshmallow import EXCLUDE, Schema, ValidationError, fields, missing

from app.protocol.datatypes import DATATYPES, check_shape, datatype_of
from app.protocol.errors import InvalidInput, InvalidRequest, format_value
from app.protocol.types import Parameters, check_number_of_tensors, parameter_error

Json = dict[str, Any]
Validate = Callable[[Any], Json]
MAX_ERRORS = 16  # maximum number of reported errors. An error takes far more time than a valid object
INPUTS = "a list of tensors with name, shape, datatype and data"


def check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(expected="a string", got=value)
    return value


def check_parameters(value: Any) -> Parameters:
    """Return the parameters without those that are null (R17). Raise InvalidInput if one is not valid."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(expected="an object", got=format_value(value))
    if None in value.values():
        return check_parameters({name: each for name, each in value.items() if each is not None})
    for name, each in value.items():
        if name == "binary_data_size" and (type(each) is not int or each < 0):
            raise parameter_error(name, each, "an integer of at least 0")
        if name in ("binary_data", "binary_data_output") and not isinstance(each, bool):
            raise parameter_error(name, each, "true or false")
        if not isinstance(each, (str, int, float)):
            raise parameter_error(name, each)
    return value


class CheckedField(fields.Field[Any]):
    """Field that a function validates and converts. It is required if `expected` is set, and can be null otherwise."""

    def __init__(self, check: Callable[[Any], Any], expected: str = ""):
        super().__init__(required=bool(expected), allow_none=not expected, load_default=missing if expected else None)
        self.check, self.error_messages = check, {"required": expected, "null": expected}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        try:
            return self.check(value)
        except InvalidRequest as error:
            raise ValidationError(error.errors) from None
        except InvalidInput as error:
            raise ValidationError([error if error.path else error.about(str(attr))]) from None


class EnvelopeSchema(Schema):
    error_messages = {"type": "an object"}
    parameters = CheckedField(check_parameters)


class RequestInputSchema(EnvelopeSchema):
    name = CheckedField(check_text, "a string")
    shape = CheckedField(check_shape, "a list of integers")
    datatype = CheckedField(datatype_of, f"one of {', '.join(DATATYPES)}")
    data = CheckedField(lambda value: value)


class RequestOutputSchema(EnvelopeSchema):
    name = CheckedField(check_text, "a string")


def validate_tensors(kind: str, schema: Schema, value: Any) -> list[Json]:
    """Validate a list of objects. Raise InvalidRequest with the errors of at most MAX_ERRORS objects."""
    if not isinstance(value, list):
        raise InvalidInput(expected="a list", got=format_value(value))
    check_number_of_tensors(f"{kind}s", len(value))
    valid, errors = [], []
    for index, each in enumerate(value):
        try:
            valid.append(schema.load(each, unknown=EXCLUDE))
        except ValidationError as error:
            name = each.get("name") if isinstance(each, dict) else None
            subject = (kind, name) if isinstance(name, str) else (f"{kind}s[{index}]",)
            errors.append([found.about(*subject) for found in errors_of(error, each)])
            if len(errors) == MAX_ERRORS:
                break
    if errors:
        raise InvalidRequest(list(chain(*errors)))
    return valid


class InferenceRequestSchema(EnvelopeSchema):
    id = CheckedField(check_text)
    inputs = CheckedField(partial(validate_tensors, "input", RequestInputSchema()), INPUTS)
    outputs = CheckedField(partial(validate_tensors, "output", RequestOutputSchema()))


SCHEMA = InferenceRequestSchema()


def validate_request(payload: Any) -> Json:
    """Validate an infer request with marshmallow. Raise InvalidRequest with its errors."""
    try:
        return cast(Json, SCHEMA.load(payload, unknown=EXCLUDE))
    except ValidationError as error:
        raise InvalidRequest(list(errors_of(error, payload))) from None


def errors_of(error: ValidationError, value: Any) -> Iterator[InvalidInput]:
    """Yield the errors in the object `value`. Convert marshmallow's own errors to InvalidInput."""
    for member, found in error.normalized_messages().items():
        for each in found:
            if isinstance(each, InvalidInput):
                yield each
            elif member == "_schema":
                yield InvalidInput(expected=each, got=format_value(value))
            elif member in value:
                yield InvalidInput(subject=member, expected=each, got="null")
            else:
                yield InvalidInput(f"missing {member}", expected=each)
