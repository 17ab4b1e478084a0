"""marshmallow schema for REST requests, made from the members in app/protocol/envelope.py.

Clients use read_object() for the same members, because they do not need marshmallow.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from marshmallow import EXCLUDE, Schema, ValidationError, fields, missing

from app.protocol.envelope import REQUEST, JsonObject, missing_member
from app.protocol.errors import InvalidInput, InvalidRequest, format_value

Validate = Callable[[Any], JsonObject]


class CheckedField(fields.Field[Any]):
    """Field that a function validates and converts. It is required if `expected` is set, and can be null otherwise."""

    def __init__(self, check: Callable[[Any], Any], expected: str = ""):
        super().__init__(
            required=bool(expected),
            allow_none=not expected,
            load_default=missing if expected else None,
        )
        self.check, self.error_messages = check, {"required": expected, "null": expected}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        try:
            return self.check(value)
        except InvalidRequest as error:
            raise ValidationError(error.errors) from None
        except InvalidInput as error:
            raise ValidationError([error if error.path else error.about(str(attr))]) from None


SCHEMA = Schema.from_dict({name: CheckedField(*member) for name, member in REQUEST.items()})()


def validate_request(payload: Any) -> JsonObject:
    """Validate an infer request with marshmallow. Raise InvalidRequest with its errors."""
    try:
        return cast(JsonObject, SCHEMA.load(payload, unknown=EXCLUDE))
    except ValidationError as error:
        raise InvalidRequest(list(errors_of(error, payload))) from None


def errors_of(error: ValidationError, value: Any) -> Iterator[InvalidInput]:
    """Yield the errors in the object `value`. Convert marshmallow's own errors to InvalidInput."""
    for member, found in error.normalized_messages().items():
        for each in found:
            if isinstance(each, InvalidInput):
                yield each
            elif member == "_schema":
                yield InvalidInput(expected="an object", got=format_value(value))
            else:
                yield missing_member(value, member, each)
