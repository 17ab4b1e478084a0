"""marshmallow schemas for the envelope of REST requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from marshmallow import EXCLUDE, Schema, ValidationError, fields, missing

from app.protocol.envelope import INPUT, REQUEST, REQUESTED, Members, missing_member, read_list
from app.protocol.errors import InvalidInput, InvalidRequest, format_value

Json = dict[str, Any]
Validate = Callable[[Any], Json]


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


def make_schema(members: Members) -> Schema:
    return EnvelopeSchema.from_dict({name: CheckedField(*each) for name, each in members.items()})()


def load(schema: Schema, value: Any) -> Json:
    """Validate an object with marshmallow. Raise InvalidRequest with its errors."""
    try:
        return cast(Json, schema.load(value, unknown=EXCLUDE))
    except ValidationError as error:
        raise InvalidRequest(list(errors_of(error, value))) from None


def errors_of(error: ValidationError, value: Any) -> Iterator[InvalidInput]:
    """Yield the errors in the object `value`. Convert marshmallow's own errors to InvalidInput."""
    for member, found in error.normalized_messages().items():
        for each in found:
            if isinstance(each, InvalidInput):
                yield each
            elif member == "_schema":
                yield InvalidInput(expected=each, got=format_value(value))
            else:
                yield missing_member(value, member, each)


INPUT_SCHEMA, OUTPUT_SCHEMA = make_schema(INPUT), make_schema(REQUESTED)
REQUEST_SCHEMA = make_schema(
    {
        **REQUEST,
        "inputs": (partial(read_list, "input", partial(load, INPUT_SCHEMA)), REQUEST["inputs"][1]),
        "outputs": (partial(read_list, "output", partial(load, OUTPUT_SCHEMA)), ""),
    }
)
validate_request = partial(load, REQUEST_SCHEMA)
