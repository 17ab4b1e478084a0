"""marshmallow schemas for the JSON of infer requests (R7, R8, R9, R17, R20).

They report every error in it, except in the `data` of tensors. A list can have millions of
elements, so `data` is checked later, when it is converted to an array in one step.

marshmallow collects errors in a tree. If the second input has no shape, the tree is

    {"inputs": {1: {"shape": [InvalidInput("missing shape", expected="a list of integers")]}}}

The errors are InvalidInput and not text, because the log omits the parts of a message that quote
the client. A field names the member. Then `_errors_in` adds the tensor to which the member belongs:

    Input "x": missing shape. Expected a list of integers.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from marshmallow import EXCLUDE, Schema, ValidationError, fields
from marshmallow.exceptions import SCHEMA

from app.protocol.datatypes import DATATYPES, Datatype, Shape, check_shape, datatype_of
from app.protocol.envelope import (
    MAX_ERRORS,
    JsonObject,
    check_number_of_tensors,
    check_parameters,
)
from app.protocol.errors import InvalidInput, InvalidRequest, format_value

Validate = Callable[[Any], JsonObject]


class MemberField(fields.Field[Any]):
    """A member of a JSON object. Subclasses describe its valid values in `expected`.

    `_deserialize` of a subclass can raise InvalidInput, because clients and gRPC share its checks.
    """

    expected: str

    def deserialize(
        self, value: Any, attr: str | None = None, data: Any = None, **kwargs: Any
    ) -> Any:
        try:
            return super().deserialize(value, attr, data, **kwargs)
        except InvalidInput as error:
            raise ValidationError([error]) from None

    def make_error(self, key: str, **kwargs: Any) -> ValidationError:
        """Return the error for a value that is absent or invalid.

        marshmallow calls this with the keys `required`, and `null` without a value. Subclasses call
        it with the key `invalid` and the value in `input`.
        """
        if key == "required":
            error = InvalidInput(f"missing {self.name}", expected=self.expected)
        else:
            got = format_value(kwargs.get("input"))
            error = InvalidInput(subject=str(self.name), expected=self.expected, got=got)
        return ValidationError([error])


class TextField(MemberField):
    expected = "a string"

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            raise self.make_error("invalid", input=value)
        return value


class ShapeField(MemberField):
    expected = "a list of integers"

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Shape:
        return check_shape(value)


class DatatypeField(MemberField):
    """The name of a datatype. It is loaded as a Datatype."""

    expected = f"one of {', '.join(DATATYPES)}"

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Datatype:
        return datatype_of(value)


class ParametersField(MemberField):
    """Parameters by name. Those that are null are not loaded."""

    expected = "an object"

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> JsonObject:
        if not isinstance(value, dict):
            raise self.make_error("invalid", input=value)
        return check_parameters(value)


class DataField(fields.Raw):
    """The elements of a tensor. They are loaded without validation."""


class TensorListField(MemberField, fields.Nested):
    """A list of tensors, which a nested schema validates.

    In contrast to marshmallow's `List(Nested(...))`, it stops after MAX_ERRORS invalid tensors.
    """

    def __init__(self, nested: type[Schema], *, expected: str, **options: Any):
        super().__init__(nested, **options)
        self.expected = expected

    def _deserialize(
        self, value: Any, attr: str | None, data: Any, *args: Any, **kwargs: Any
    ) -> list[JsonObject]:
        if not isinstance(value, list):
            raise self.make_error("invalid", input=value)
        check_number_of_tensors(str(self.name), len(value))

        tensors = []
        errors = {}
        for index, tensor in enumerate(value):
            try:
                tensors.append(self.schema.load(tensor))
            except ValidationError as error:
                errors[index] = error.messages
                if len(errors) == MAX_ERRORS:
                    break
        if errors:
            raise ValidationError(errors)
        return tensors


class RequestObjectSchema(Schema):
    """A JSON object of a request. Unknown members are ignored (R7)."""

    class Meta:
        unknown = EXCLUDE


class RequestInputSchema(RequestObjectSchema):
    name = TextField(required=True)
    shape = ShapeField(required=True)
    datatype = DatatypeField(required=True)
    parameters = ParametersField(load_default=None)
    data = DataField(load_default=None)


class RequestOutputSchema(RequestObjectSchema):
    name = TextField(required=True)
    parameters = ParametersField(load_default=None)


class InferenceRequestSchema(RequestObjectSchema):
    id = TextField(load_default=None)
    parameters = ParametersField(load_default=None)
    inputs = TensorListField(
        RequestInputSchema,
        required=True,
        expected="a list of tensors with name, shape, datatype and data",
    )
    outputs = TensorListField(
        RequestOutputSchema, load_default=None, expected="a list of outputs with name"
    )


_REQUEST_SCHEMA = InferenceRequestSchema()


def validate_request(payload: Any) -> JsonObject:
    """Return the members of an infer request, with None for absent ones.

    `datatype` becomes a Datatype. Raise InvalidRequest with all errors.
    """
    try:
        return cast(JsonObject, _REQUEST_SCHEMA.load(payload))
    except ValidationError as error:
        messages = error.normalized_messages()
        raise InvalidRequest(list(_errors_in(messages, payload))) from None


def _errors_in(messages: dict[Any, Any], value: Any) -> Iterator[InvalidInput]:
    """Yield the errors in a tree of marshmallow. It belongs to `value`, a request or a tensor."""
    for member, member_messages in messages.items():
        if member == SCHEMA:  # marshmallow's own error for a value that is not an object
            yield InvalidInput(expected="an object", got=format_value(value))
        elif isinstance(member_messages, list):
            yield from member_messages
        else:
            for index, tensor_messages in member_messages.items():
                tensor = value[member][index]
                for error in _errors_in(tensor_messages, tensor):
                    yield _about_tensor(error, member, index, tensor)


def _about_tensor(error: InvalidInput, member: str, index: int, tensor: Any) -> InvalidInput:
    """Prepend the tensor to the subject of `error`: its name or, if it has none, `inputs[0]`."""
    name = tensor.get("name") if isinstance(tensor, dict) else None
    if isinstance(name, str):
        return error.about(member.removesuffix("s"), name)
    return error.about(f"{member}[{index}]")
