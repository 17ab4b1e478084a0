"""marshmallow schemas for the envelope of REST requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, cast

from marshmallow import EXCLUDE, Schema, ValidationError, fields, missing

from app.protocol.datatypes import check_shape, datatype_of
from app.protocol.errors import NOTHING, InvalidInput, InvalidRequest
from app.protocol.types import Parameters, check_number_of_tensors

Json = dict[str, Any]
Validate = Callable[[Any], Json]
# Maximum number of invalid objects that are reported. An error takes far more time than a valid object.
MAX_ERRORS = 16
# Replacements for marshmallow's messages: the expected value.
EXPECTED: dict[str, Any] = {"required": "a value", "null": "a value", "type": "an object"}


def check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(expected="a string", got=value)
    return value


def check_parameters(value: Any) -> Parameters:
    """Return the parameters (R17), or an empty dict for null. Raise InvalidInput if they are not valid."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(expected="an object", got=value)
    for name, each in value.items():
        if name == "binary_data_size":
            is_valid, expected = type(each) is int and each >= 0, "an integer of at least 0"
        elif name in ("binary_data", "binary_data_output"):
            is_valid, expected = isinstance(each, bool), "true or false"
        else:
            is_valid, expected = isinstance(each, (str, int, float)), "a string, number or boolean"
        if not is_valid:
            raise InvalidInput(expected=expected, got=each).about("parameter", name)
    return value


class CheckedField(fields.Field[Any]):
    """Field that a function validates and converts. Optional fields accept null."""

    default_error_messages = EXPECTED

    def __init__(self, check: Callable[[Any], Any], required: bool = False):
        super().__init__(required=required, allow_none=not required, load_default=missing if required else None)
        self.check = check

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        try:
            return self.check(value)
        except InvalidRequest as error:
            raise ValidationError(error.errors) from None
        except InvalidInput as error:
            raise ValidationError([error if error.subject == attr else error.about(str(attr))]) from None


class EnvelopeSchema(Schema):
    error_messages = EXPECTED
    parameters = CheckedField(check_parameters)


class RequestInputSchema(EnvelopeSchema):
    name = CheckedField(check_text, required=True)
    shape = CheckedField(check_shape, required=True)
    datatype = CheckedField(datatype_of, required=True)
    data = CheckedField(lambda value: value)


class RequestOutputSchema(EnvelopeSchema):
    name = CheckedField(check_text, required=True)


def validate_tensors(kind: str, schema: Schema, value: Any) -> list[Json]:
    """Validate a list of objects. Raise InvalidRequest with the errors of at most MAX_ERRORS objects."""
    if not isinstance(value, list):
        raise InvalidInput(expected="a list", got=value)
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
    inputs = CheckedField(partial(validate_tensors, "input", RequestInputSchema()), required=True)
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
        subject, got = ("", value) if member == "_schema" else (member, value.get(member, NOTHING))
        for each in found:
            yield each if isinstance(each, InvalidInput) else InvalidInput(subject=subject, expected=each, got=got)
