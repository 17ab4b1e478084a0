"""Conversion of a request's inputs to the arguments of predict().

When the service starts, bind_signature() selects a binder for predict()'s signature. For each
request, its method bind() returns the arguments by name:

| Parameters of predict() after the model             | Binder             |
|-----------------------------------------------------|--------------------|
| one per input                                       | InputsBinder       |
| one dict[str, np.ndarray]                           | DictBinder         |
| one InferenceRequest                                | RequestBinder      |
| one pd.DataFrame                                    | DataFrameBinder    |
| one of a type that a request codec of the project returns (C10) | CustomTypeBinder |

A ContextBinder around one of these adds the parameters that receive contexts.
"""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from app.codecs import SHIPPED, find_input_codec
from app.codecs.base import (
    check_request_content_type,
    decode_as,
    decode_request,
    decode_tensor,
)
from app.inference.annotations import ANNOTATIONS, Annotation, find_annotation
from app.inference.call import Call
from app.inference.request_context import RequestContext, create_contexts
from app.inference.signature import Signature, simplify_annotation
from app.protocol.errors import ConfigurationError, InferenceError, InvalidInput, join_names
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput

# The only content types that are valid for inputs and for requests (C3).
TYPES_OF_BOTH_LEVELS = ("np", "str")
WHOLE_REQUEST = (
    "a single parameter that is a pd.DataFrame, a dict[str, np.ndarray] or an InferenceRequest "
    "for all inputs"
)


class Binder(Protocol):
    """Creates the arguments of predict() for one request."""

    def bind(
        self,
        request: InferenceRequest,
        inputs: dict[str, RequestInput],
        calls: Sequence[Call],
    ) -> dict[str, Any]:
        """Return the arguments by name.

        `inputs` are the inputs of `request` in their declared ranks (R15). `calls` are those of
        the requests in a batch, or one. Raise InvalidInput if an input cannot be decoded, or not be
        converted to the annotated type.
        """


def bind_signature(signature: Signature, metadata: ModelMetadata) -> tuple[Binder, ModelMetadata]:
    """Return the binder for predict()'s signature, and the metadata of the served model.

    The latter is `metadata` in which inputs are also optional if their parameter has a default
    value. Raise ConfigurationError if the signature does not match METADATA.
    """
    binder = _bind_whole_request(signature, metadata)
    if binder is None:
        binder = _bind_inputs(signature, metadata)
        metadata = _mark_optional_inputs(signature, metadata)
    if signature.contexts:
        binder = ContextBinder(binder, signature.contexts)
    return binder, metadata


# Content types


def content_type_of(
    tensor: RequestInput,
    declared: MetadataTensor,
    *,
    request_content_type: str | None,
    annotation: Annotation,
) -> Any:
    """Return the content type of an input: that of the first of four places that has one (C2)."""
    # 1. The parameters of the input in the request.
    content_type = tensor.parameters.get("content_type")
    if content_type is not None:
        return content_type

    # 2. The model metadata of the input.
    if declared.content_type is not None:
        return declared.content_type

    # 3. The content type of the whole request, if it is also valid for an input.
    if request_content_type in TYPES_OF_BOTH_LEVELS:
        return request_content_type

    # 4. The annotation of predict()'s parameter.
    return annotation.content_type


def content_type_of_request(request: InferenceRequest, metadata: ModelMetadata) -> str | None:
    """Return the content type of the request or, if it has none, that at the top level of METADATA,
    or None.

    Raise InvalidInput if it is unknown.
    """
    content_type = request.parameters.get("content_type")
    if content_type is None:
        content_type = metadata.content_type
    if content_type is not None:
        check_request_content_type(content_type)
    return content_type


# One argument per input


class InputsBinder:
    """One argument per input.

    Optional inputs that the client omits have none, so predict()'s default applies.
    """

    def __init__(self, annotations: Mapping[str, Annotation], metadata: ModelMetadata):
        self._annotations = annotations
        self._metadata = metadata
        self._declared = {tensor.name: tensor for tensor in metadata.inputs}

    def bind(
        self,
        request: InferenceRequest,
        inputs: dict[str, RequestInput],
        calls: Sequence[Call],
    ) -> dict[str, Any]:
        request_content_type = content_type_of_request(request, self._metadata)
        arguments = {}
        for name, tensor in inputs.items():
            arguments[name] = self._argument(tensor, request_content_type)
        return arguments

    def _argument(self, tensor: RequestInput, request_content_type: str | None) -> Any:
        annotation = self._annotations[tensor.name]
        content_type = content_type_of(
            tensor,
            self._declared[tensor.name],
            request_content_type=request_content_type,
            annotation=annotation,
        )
        value = decode_as(tensor, content_type)
        try:
            argument = annotation.convert(value, tensor)
            if argument is None:
                raise _wrong_type_error(value, annotation.name)
        except InferenceError as error:
            raise error.about("input", tensor.name, is_declared=True) from None
        return argument


def _bind_inputs(signature: Signature, metadata: ModelMetadata) -> InputsBinder:
    """Return the binder for a parameter per input.

    Raise ConfigurationError if names or annotations do not match.
    """
    names = [parameter.name for parameter in signature.inputs]
    declared = [tensor.name for tensor in metadata.inputs]
    if set(names) != set(declared):
        raise ConfigurationError(
            f"predict() does not match METADATA. Expected {join_names(declared)} after the model, "
            f"as METADATA declares, got {join_names(names)}. "
            f"Use the same names, or {WHOLE_REQUEST}."
        )
    annotations = {}
    for tensor in metadata.inputs:
        type_hint = signature.annotations.get(tensor.name, np.ndarray)
        annotations[tensor.name] = _annotation_for(tensor, type_hint)
    return InputsBinder(annotations, metadata)


def _annotation_for(tensor: MetadataTensor, type_hint: Any) -> Annotation:
    """Return the annotation of one input.

    Raise ConfigurationError if it does not match METADATA.
    """
    subject = f'predict(), parameter "{tensor.name}"'
    annotation = find_annotation(type_hint, tensor)
    if annotation is None:
        name = type_hint.__name__ if isinstance(type_hint, type) else type_hint
        raise ConfigurationError(
            f"{subject}: invalid annotation. Expected np.ndarray, list[str], list[bytes] or "
            f"list[datetime] for one input, or {WHOLE_REQUEST}, got {name}."
        )
    if annotation.datatype not in (None, tensor.datatype):
        raise ConfigurationError(
            f"{subject}: invalid annotation {type_hint}. "
            f"Expected {annotation.datatype} in METADATA, got {tensor.datatype}."
        )
    return annotation


def _mark_optional_inputs(signature: Signature, metadata: ModelMetadata) -> ModelMetadata:
    """Return the metadata in which each input is optional whose parameter has a default value.

    Raise ConfigurationError if METADATA declares another input as optional: predict() cannot run
    without it.
    """
    defaults = set()
    for parameter in signature.inputs:
        if parameter.default is not parameter.empty:
            defaults.add(parameter.name)
    inputs = []
    for tensor in metadata.inputs:
        if tensor.optional and tensor.name not in defaults:
            raise ConfigurationError(
                f'predict(), parameter "{tensor.name}": missing default value, because METADATA '
                "declares the input as optional. Add a value such as None."
            )
        inputs.append(replace(tensor, optional=tensor.name in defaults))
    return replace(metadata, inputs=inputs)


# One argument for the whole request


class DictBinder:
    """One dict with an array per input."""

    def __init__(self, parameter: str, binder: InputsBinder):
        self._parameter = parameter
        self._binder = binder

    def bind(
        self,
        request: InferenceRequest,
        inputs: dict[str, RequestInput],
        calls: Sequence[Call],
    ) -> dict[str, Any]:
        return {self._parameter: self._binder.bind(request, inputs, calls)}


class RequestBinder:
    """The InferenceRequest itself.

    Its inputs are not decoded, and keep the rank that the client sent.
    """

    def __init__(self, parameter: str):
        self._parameter = parameter

    def bind(
        self,
        request: InferenceRequest,
        inputs: dict[str, RequestInput],
        calls: Sequence[Call],
    ) -> dict[str, Any]:
        return {self._parameter: request}


class CustomTypeBinder:
    """One value of a type that a request codec returns, from the inputs in the order of METADATA.

    `content_type` selects the codec if neither the request nor the top level of METADATA has a
    content type.
    """

    def __init__(
        self, parameter: str, value_class: type, metadata: ModelMetadata, content_type: str
    ):
        self._parameter = parameter
        self._value_class = value_class
        self._metadata = metadata
        self._content_type = content_type

    def bind(
        self,
        request: InferenceRequest,
        inputs: dict[str, RequestInput],
        calls: Sequence[Call],
    ) -> dict[str, Any]:
        # The codec gets the inputs in the order of METADATA, with the declared content types.
        ordered_inputs = []
        for tensor in self._metadata.inputs:
            if tensor.name in inputs:
                ordered_inputs.append(apply_declared_content_type(inputs[tensor.name], tensor))
        ordered_request = InferenceRequest(ordered_inputs, parameters=request.parameters)
        value = decode_request(ordered_request, self._codec_name(request))
        if not isinstance(value, self._value_class):
            raise _wrong_type_error(value, self._value_class.__name__)
        return {self._parameter: value}

    def _codec_name(self, request: InferenceRequest) -> str:
        return content_type_of_request(request, self._metadata) or self._content_type


class DataFrameBinder(CustomTypeBinder):
    """One DataFrame with a column per input."""

    def __init__(self, parameter: str, value_class: type, metadata: ModelMetadata):
        _check_columns(metadata)
        super().__init__(parameter, value_class, metadata, content_type="pd")

    def _codec_name(self, request: InferenceRequest) -> str:
        name = super()._codec_name(request)
        # The request codecs `np` and `str` return the value of the first input, not a DataFrame. If
        # the model has only this input, its value is the only column, which `pd` decodes.
        has_one_column = len(self._metadata.inputs) == 1
        if name in TYPES_OF_BOTH_LEVELS and has_one_column:
            return "pd"
        return name


def _bind_whole_request(signature: Signature, metadata: ModelMetadata) -> Binder | None:
    """Return the binder of a single parameter for the whole request, or None if the signature has
    another form.
    """
    if len(signature.inputs) != 1:
        return None
    parameter = signature.inputs[0].name
    type_hint = signature.annotations.get(parameter)

    if type_hint is InferenceRequest:
        return RequestBinder(parameter)
    array_hint = _array_of_dict(type_hint)
    if array_hint is not None:
        arrays = {tensor.name: _annotation_for(tensor, array_hint) for tensor in metadata.inputs}
        return DictBinder(parameter, InputsBinder(arrays, metadata))
    if not isinstance(type_hint, type) or type_hint in ANNOTATIONS:
        return None
    if _is_data_frame(type_hint):
        return DataFrameBinder(parameter, type_hint, metadata)
    if metadata.content_type and metadata.content_type not in SHIPPED:
        return CustomTypeBinder(parameter, type_hint, metadata, metadata.content_type)
    return None


def _array_of_dict(type_hint: Any) -> Any:
    """Return the array type in the annotation `dict[str, ...]` or `dict`, or None for another
    annotation.
    """
    if type_hint is dict:
        return np.ndarray
    if typing.get_origin(type_hint) is not dict:
        return None
    key_type, value_type = typing.get_args(type_hint) or (str, np.ndarray)
    array_hint = simplify_annotation(value_type)
    is_array = array_hint is np.ndarray or isinstance(array_hint, np.dtype)
    if key_type is str and is_array:
        return array_hint
    return None


def _is_data_frame(value_class: type) -> bool:
    """Return True for pandas' class, without importing pandas, which may not be installed."""
    return value_class.__name__ == "DataFrame" and value_class.__module__.startswith("pandas")


def _check_columns(metadata: ModelMetadata) -> None:
    """Raise ConfigurationError if an input cannot be a column: a scalar, or BYTES without a content
    type.
    """
    if metadata.content_type not in (None, "pd"):  # another codec creates the DataFrame
        return
    for tensor in metadata.inputs:
        subject = f'METADATA, tensor "{tensor.name}"'
        if not tensor.shape:
            raise ConfigurationError(
                f"{subject}: invalid shape. Expected [-1] for a column of a DataFrame, got []."
            )
        if tensor.datatype == "BYTES" and tensor.content_type is None:
            raise ConfigurationError(
                f"{subject}: missing content type for a DataFrame column. "
                'Set content_type="str" for text, or "datetime", or "bytes".'
            )


def apply_declared_content_type(tensor: RequestInput, declared: MetadataTensor) -> RequestInput:
    """Return the input with METADATA's content type, so that its column has the same type as in
    training.

    If the client sends another content type, it says only how to decode the data: the values are
    then encoded again with the declared one. Raise InvalidInput if this is not possible.
    """
    sent_type = tensor.parameters.get("content_type")
    declared_type = declared.content_type
    if declared_type is None or declared_type == sent_type:
        return tensor

    # The data does not change if the client sends no content type. It does not either for text that
    # is declared as datetimes, because datetimes are sent as text.
    is_datetime_text = sent_type == "str" and declared_type == "datetime"
    if sent_type is None or is_datetime_text:
        parameters = {**tensor.parameters, **declared.parameters}
        return RequestInput.of(
            tensor.name, tensor.datatype, tensor.data, parameters, tensor.missing
        )

    # A client that sends `str` for declared JSON wants text, not the values in it.
    is_json_text = sent_type == "str" and declared_type == "pd_json"
    # A codec of the project may not be able to encode the values of another one.
    is_projects_codec = declared_type not in SHIPPED
    if is_json_text or is_projects_codec:
        return tensor

    codec = find_input_codec(declared_type)
    value = decode_tensor(tensor, codec)  # with the client's content type, not with `codec`
    try:
        encoded = codec.encode_input(tensor.name, value, missing=tensor.missing)
    except InferenceError as error:
        raise error.about("input", tensor.name, is_declared=True) from None
    array = encoded.data
    if array.size == tensor.data.size:
        array = array.reshape(tensor.shape)
    return RequestInput.of(tensor.name, encoded.datatype, array, encoded.parameters, tensor.missing)


# Contexts


class ContextBinder:
    """Adds the contexts of the requests to the arguments of another binder.

    `annotations` are those of the parameters by name: RequestContext or list[RequestContext].
    """

    def __init__(self, binder: Binder, annotations: Mapping[str, Any]):
        self._binder = binder
        self._annotations = annotations

    def bind(
        self,
        request: InferenceRequest,
        inputs: dict[str, RequestInput],
        calls: Sequence[Call],
    ) -> dict[str, Any]:
        contexts = create_contexts(request, calls)
        arguments = self._binder.bind(request, inputs, calls)
        for name, annotation in self._annotations.items():
            if annotation is RequestContext:
                arguments[name] = contexts[0]
            else:
                arguments[name] = contexts
        return arguments


def _wrong_type_error(value: Any, name: str) -> InvalidInput:
    """Return the error for a decoded value that does not have the annotated type `name`."""
    return InvalidInput(
        subject="content_type", expected=f"one that decodes to {name}", got=type(value).__name__
    )
