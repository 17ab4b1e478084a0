"""Conversion of a request's inputs to the arguments of predict(), whose signature is checked once at startup.

The content type of an input has four sources (C2). In order of precedence, they are the input's parameters, METADATA,
the content type of the request (only `np` and `str`), and the annotation in predict()'s signature. The decoded value is
then converted to the annotated type.
"""

import inspect
import types
import typing
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from app.codecs import SHIPPED, find_input_codec, find_request_codec
from app.codecs.arrays import writable_copy
from app.codecs.base import decode_tensor, input_codecs
from app.codecs.datetimes import parse_datetime
from app.codecs.strings import as_list, text_list
from app.inference.request_context import INFER, Headers, RequestContext, current_contexts
from app.inference.startup_errors import project_path
from app.protocol.datatypes import as_bytes, object_array
from app.protocol.errors import ConfigurationError, InferenceError, InvalidInput, join_names
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput, Tensor

Convert = Callable[[Any, Tensor], Any]  # converts a decoded value to the annotated type
# Returns the arguments of predict() for a request and its validated inputs.
Arguments = Callable[[InferenceRequest, dict[str, RequestInput]], dict[str, Any]]


def to_array(value: Any, tensor: Tensor) -> np.ndarray | None:
    if isinstance(value, np.ndarray):
        return writable_copy(value)
    is_list = isinstance(value, list) and len(value) == tensor.data.size
    return object_array(value).reshape(tensor.data.shape) if is_list else None


def to_texts(value: Any, tensor: Tensor) -> list[str | None] | None:
    elements = text_list(as_list(value))
    return elements if set(map(type, elements)) <= {str, type(None)} else None


def to_byte_strings(value: Any, tensor: Tensor) -> list[bytes | None] | None:
    elements = as_list(value)
    allowed = {str, bytes} if tensor.missing is None else {str, bytes, type(None)}
    return as_bytes(elements) if set(map(type, elements)) <= allowed else None


def to_moments(value: Any, tensor: Tensor) -> list[datetime | None] | None:
    elements: list[Any] = text_list(as_list(value))
    types = set(map(type, elements)) - (set() if tensor.missing is None else {type(None)})
    if types <= {str}:
        return [None if each is None else parse_datetime(each) for each in elements]
    return elements if all(issubclass(each, datetime) for each in types) else None


@dataclass(frozen=True)
class Argument:
    """Conversion of one input to an argument. `convert` returns None if the value cannot be converted."""

    tensor: MetadataTensor
    wanted: str
    content_type: str  # the default, if neither the request nor METADATA sets one
    convert: Convert

    def decode(self, sent: RequestInput, request_level: str | None) -> Any:
        """Return the argument for `sent`. Raise InvalidInput if it cannot be converted to the annotated type."""
        value = decode_tensor(
            sent, input_codecs[self.tensor.content_type or request_level or self.content_type]
        )
        try:
            argument = self.convert(value, sent)
            if argument is None:
                raise wrong_type_error(value, self.wanted)
        except InferenceError as error:
            raise error.about("input", sent.name, is_declared=True) from None
        return argument


# Supported annotations of a parameter for one input.
ANNOTATIONS: dict[Any, Callable[[MetadataTensor], Argument]] = {
    np.ndarray: partial(Argument, wanted="np.ndarray", content_type="np", convert=to_array),
    list[str]: partial(Argument, wanted="list[str]", content_type="str", convert=to_texts),
    list[bytes]: partial(
        Argument, wanted="list[bytes]", content_type="np", convert=to_byte_strings
    ),
    list[datetime]: partial(
        Argument, wanted="list[datetime]", content_type="datetime", convert=to_moments
    ),
}
CONTEXTS = RequestContext, list[RequestContext]  # annotations of a parameter that is not an input
WHOLE = "a single parameter that is a pd.DataFrame, a dict[str, np.ndarray] or an InferenceRequest for all inputs"


def wrong_type_error(value: Any, wanted: str) -> InvalidInput:
    return InvalidInput(
        subject="content_type", expected=f"one that decodes to {wanted}", got=type(value).__name__
    )


def bind_arguments(
    predict: Callable[..., Any], metadata: ModelMetadata
) -> tuple[Arguments, ModelMetadata]:
    """Return a function that creates the arguments of predict() for a request, and the metadata of the served model.

    The latter equals `metadata`, but an input whose parameter has a default value is optional. Raise ConfigurationError if the signature does not match METADATA.
    """
    with with_location(predict):
        parameters, hints = input_parameters(predict), annotations_of(predict)
        contexts = {
            each.name: hints[each.name] for each in parameters if hints.get(each.name) in CONTEXTS
        }
        parameters = [each for each in parameters if each.name not in contexts]
        if len(parameters) == 1 and (
            whole := bind_whole_request(parameters[0].name, hints, metadata)
        ):
            return add_contexts(whole, contexts), metadata
        names, declared = (
            [each.name for each in parameters],
            [tensor.name for tensor in metadata.inputs],
        )
        if {*names} != {*declared}:
            problem = f"Expected {join_names(declared)} after the model, as METADATA declares, got {join_names(names)}"
            raise ConfigurationError(
                f"predict() does not match METADATA. {problem}. Use the same names, or {WHOLE}."
            )
        slots = {
            tensor.name: make_argument(tensor, hints.get(tensor.name, np.ndarray))
            for tensor in metadata.inputs
        }
        arguments = add_contexts(bind_inputs(slots, metadata), contexts)
        return arguments, mark_optional_inputs(metadata, parameters)


def mark_optional_inputs(
    metadata: ModelMetadata, parameters: list[inspect.Parameter]
) -> ModelMetadata:
    """Return the metadata in which each input is optional whose parameter of predict() has a default value.

    Raise ConfigurationError if METADATA declares another input as optional: predict() cannot run without it.
    """
    defaults = {each.name for each in parameters if each.default is not each.empty}
    inputs = []
    for tensor in metadata.inputs:
        if tensor.optional and tensor.name not in defaults:
            problem = "missing default value, because METADATA declares the input as optional"
            raise ConfigurationError(
                f'predict(), parameter "{tensor.name}": {problem}. Add a value such as None.'
            )
        inputs.append(replace(tensor, optional=tensor.name in defaults))
    return replace(metadata, inputs=inputs)


def add_contexts(arguments: Arguments, contexts: dict[str, Any]) -> Arguments:
    """Return a function that also creates the arguments for the parameters in `contexts`, a dict of annotations."""
    if not contexts:
        return arguments

    def with_contexts(request: InferenceRequest, inputs: dict[str, RequestInput]) -> dict[str, Any]:
        found = current_contexts.get() or (RequestContext(INFER),)  # none in the warm-up
        if not found[0].batch_rows and request.inputs:
            found[0].rows = len(np.atleast_1d(request.inputs[0].data))
        for each in found:
            each.response_headers, each.response_parameters = Headers(), {}
        own = {
            name: found[0] if hint is RequestContext else [*found]
            for name, hint in contexts.items()
        }
        return {**arguments(request, inputs), **own}

    return with_contexts


@contextmanager
def with_location(function: Any) -> Iterator[None]:
    """Prefix a ConfigurationError with the file and line of `function`."""
    try:
        yield
    except ConfigurationError as error:
        code: Any = getattr(inspect.unwrap(function), "__code__", None)
        name = project_path(code.co_filename) if code else None
        raise ConfigurationError(
            f"{name}, line {code.co_firstlineno}: {error}" if name else str(error)
        ) from None


def check_functions(module: Any) -> None:
    """Raise ConfigurationError if a function is async or a generator, or if an optional function has no parameter."""
    kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    for name in ("load", "predict", "warm_up", "is_healthy", "unload"):
        function = getattr(module, name, None)
        with with_location(function):
            if any(is_kind(function) for is_kind in kinds):
                raise ConfigurationError(
                    f"{name}() is async or a generator. Expected a plain function."
                )
            if (
                function
                and name not in ("load", "predict")
                and not inspect.signature(function).parameters
            ):
                raise ConfigurationError(
                    f"{name}() has no parameters. Expected the result of load()."
                )


def input_parameters(predict: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return predict()'s parameters after the model. Raise ConfigurationError if one has *, ** or /."""
    if not hasattr(predict, "__name__"):  # a partial or a callable object
        raise ConfigurationError(
            f"Invalid predict. Expected a function (def), got {type(predict).__name__}."
        )
    parameters = list(inspect.signature(predict).parameters.values())
    if not parameters:
        raise ConfigurationError(
            "predict() has no parameters. Expected the result of load() as the first one."
        )
    for parameter in parameters:
        if parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise ConfigurationError(
                f'predict(), parameter "{parameter.name}": invalid kind. Expected no *, ** or /.'
            )
    return parameters[1:]


def annotations_of(predict: Callable[..., Any]) -> dict[str, Any]:
    """Return simplified annotations by parameter: X for `X | None`, np.ndarray or bfloat16's dtype for NDArray[...]."""
    try:
        hints = typing.get_type_hints(predict)
    except Exception as error:  # an unknown name or attribute, or invalid syntax
        raise ConfigurationError(f"predict(): cannot resolve an annotation: {error}") from None
    return {name: simplify_annotation(hint) for name, hint in hints.items()}


def simplify_annotation(hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    alias = getattr(
        origin or hint, "__value__", None
    )  # since Python 3.12, NDArray is defined by a `type` statement
    if alias is not None:
        return simplify_annotation(alias[arguments] if arguments else alias)
    if origin in (typing.Union, types.UnionType):
        kept = [each for each in arguments if each is not type(None)]
        return simplify_annotation(kept[0]) if len(kept) == 1 else hint
    if origin is np.ndarray:
        scalars = {getattr(each, "__name__", ""): each for each in typing.get_args(arguments[-1])}
        return np.dtype(scalars["bfloat16"]) if "bfloat16" in scalars else np.ndarray
    return np.ndarray if hint is Any else hint


def make_argument(tensor: MetadataTensor, hint: Any) -> Argument:
    """Return the Argument of an input with the annotation `hint`. Raise ConfigurationError if they do not match."""
    subject, is_bfloat16 = f'predict(), parameter "{tensor.name}"', isinstance(hint, np.dtype)
    if is_bfloat16 or (isinstance(hint, Hashable) and hint in ANNOTATIONS):
        expected = "BF16" if is_bfloat16 else "BYTES"
        if hint is not np.ndarray and tensor.datatype != expected:
            problem = f"invalid annotation {hint}. Expected {expected} in METADATA, got {tensor.datatype}."
            raise ConfigurationError(f"{subject}: {problem}")
        if not is_bfloat16:
            return ANNOTATIONS[hint](tensor)
        convert: Convert = lambda value, _: (  # noqa: E731
            value.astype(hint) if isinstance(value, np.ndarray) else None
        )
        return Argument(tensor, "np.ndarray", "np", convert)
    custom = tensor.content_type
    if isinstance(hint, type) and custom not in SHIPPED and custom in input_codecs:
        return Argument(
            tensor,
            hint.__name__,
            custom,
            lambda value, _: value if isinstance(value, hint) else None,
        )
    name = hint.__name__ if isinstance(hint, type) else hint
    expected = f"np.ndarray, list[str], list[bytes] or list[datetime] for one input, or {WHOLE}"
    raise ConfigurationError(f"{subject}: invalid annotation. Expected {expected}, got {name}.")


def bind_inputs(slots: dict[str, Argument], metadata: ModelMetadata) -> Arguments:
    def arguments(request: InferenceRequest, inputs: dict[str, RequestInput]) -> dict[str, Any]:
        level = (
            request_content_type(request, metadata)
            if request.parameters or metadata.content_type
            else None
        )
        for_inputs = level if level in ("np", "str") else None
        return {name: slots[name].decode(sent, for_inputs) for name, sent in inputs.items()}

    return arguments


def request_content_type(request: InferenceRequest, metadata: ModelMetadata) -> str | None:
    """Return the content type of the request, or METADATA's. Raise InvalidInput if it is unknown."""
    level = request.parameters.get("content_type")
    if level is None:
        level = metadata.content_type
    if level is not None:
        find_request_codec(level)
    return level


def bind_whole_request(
    name: str, hints: dict[str, Any], metadata: ModelMetadata
) -> Arguments | None:
    """Return a function that creates the only argument, or None if its annotation is not for the whole request."""
    hint, custom = hints.get(name), metadata.content_type
    if hint is InferenceRequest:
        return lambda request, inputs: {name: request}
    if hint is dict or typing.get_origin(hint) is dict:
        kinds = [simplify_annotation(each) for each in typing.get_args(hint) or (str, np.ndarray)]
        if kinds[0] is str and (kinds[-1] is np.ndarray or isinstance(kinds[-1], np.dtype)):
            arrays = bind_inputs(
                {each.name: make_argument(each, kinds[-1]) for each in metadata.inputs}, metadata
            )
            return lambda request, inputs: {name: arrays(request, inputs)}
    if not isinstance(hint, type) or hint in ANNOTATIONS:
        return None
    if hint.__name__ == "DataFrame" and hint.__module__.startswith("pandas"):
        check_frame_inputs(metadata)
        return decode_whole_request(name, "pd", hint, metadata)
    return (
        decode_whole_request(name, custom, hint, metadata)
        if custom and custom not in SHIPPED
        else None
    )


def check_frame_inputs(metadata: ModelMetadata) -> None:
    """Raise ConfigurationError if an input cannot be a column: a scalar, or BYTES without a content type."""
    if metadata.content_type not in (None, "pd"):  # another codec creates the DataFrame
        return
    for tensor in metadata.inputs:
        subject = f'METADATA, tensor "{tensor.name}"'
        if not tensor.shape:
            raise ConfigurationError(
                f"{subject}: invalid shape. Expected [-1] for a column of a DataFrame, got []."
            )
        if tensor.datatype == "BYTES" and tensor.content_type is None:
            remedy = 'Set content_type="str" for text, or "datetime", or "bytes"'
            raise ConfigurationError(
                f"{subject}: missing content type for a DataFrame column. {remedy}."
            )


def decode_whole_request(name: str, default: str, hint: type, metadata: ModelMetadata) -> Arguments:
    """Return a function that decodes a whole request with its request codec, in METADATA's order (C1)."""

    def arguments(request: InferenceRequest, inputs: dict[str, RequestInput]) -> dict[str, Any]:
        level = request_content_type(request, metadata)
        tensors = [
            apply_content_type(inputs[each.name], each)
            for each in metadata.inputs
            if each.name in inputs
        ]
        is_column = (
            default == "pd" and level in ("np", "str") and len(metadata.inputs) == 1
        )  # neither creates a DataFrame
        codec = find_request_codec("pd" if is_column else level or default)
        value = codec.decode_request(InferenceRequest(tensors, parameters=request.parameters))
        if not isinstance(value, hint):
            raise wrong_type_error(value, hint.__name__)
        return {name: value}

    return arguments


def apply_content_type(sent: RequestInput, tensor: MetadataTensor) -> RequestInput:
    """Return `sent` with METADATA's content type, so that the column has the same type as in training.

    The client's content type is only used to decode the data.
    """
    named, declared = sent.parameters.get("content_type"), tensor.content_type
    if declared is not None and (named is None or (named, declared) == ("str", "datetime")):
        parameters = {**sent.parameters, **tensor.parameters}
        return RequestInput.of(sent.name, sent.datatype, sent.data, parameters, sent.missing)
    if (
        declared not in SHIPPED or declared == named or (named, declared) == ("str", "pd_json")
    ):  # JSON is also text
        return sent
    codec = find_input_codec(declared)
    value = decode_tensor(sent, codec)
    try:
        made = codec.encode_input(sent.name, value, missing=sent.missing)
    except InferenceError as error:
        raise error.about("input", sent.name, is_declared=True) from None
    array = made.data.reshape(sent.shape) if made.data.size == sent.data.size else made.data
    return RequestInput.of(sent.name, made.datatype, array, made.parameters, sent.missing)
