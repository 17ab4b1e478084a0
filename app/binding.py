"""What predict() takes: its signature bound to METADATA once, at the start, so that a request only runs what was bound.

Each input is decoded by a content type: the one the request names for it, else METADATA's, else the request's own where
that serves inputs too (`np`, `str`), else that of the parameter's annotation (C2). Then it is handed over as annotated.
"""

from __future__ import annotations

import inspect
import keyword
import types
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from app.codecs import SHIPPED, find_input_codec, find_request_codec
from app.codecs.arrays import own
from app.codecs.base import decode_tensor, input_codecs
from app.codecs.datetimes import parse
from app.codecs.frames import decode_frame, is_frame
from app.codecs.strings import as_list, text_list
from app.contract import listed
from app.datatypes import object_array, octets
from app.errors import InferenceError, InvalidInput, SetupError
from app.failure import definition
from app.types import InferenceRequest, MetadataTensor, ModelMetadata, RequestInput, Tensor

HandOver = Callable[[Any, Tensor], Any]
# predict()'s arguments of a request whose inputs were matched with METADATA.
Arguments = Callable[[InferenceRequest, dict[str, RequestInput]], dict[str, Any]]


def refuse(value: Any, wanted: str) -> InvalidInput:
    return InvalidInput(subject="content_type", expected=f"{wanted} for predict()", got=type(value).__name__)


def to_array(value: Any, tensor: Tensor) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return own(value)
    if isinstance(value, list) and len(value) == tensor.data.size:
        return object_array(value).reshape(tensor.data.shape)
    raise refuse(value, "np.ndarray")


def to_texts(value: Any, tensor: Tensor) -> list[str | None]:
    elements = text_list(as_list(value))
    if set(map(type, elements)) <= {str, type(None)}:
        return elements
    raise refuse(value, "list[str]")


def to_octets(value: Any, tensor: Tensor) -> list[bytes]:
    elements = as_list(value)
    if set(map(type, elements)) <= {str, bytes}:
        return octets(elements)  # type: ignore[return-value]
    raise refuse(value, "list[bytes]")


def to_moments(value: Any, tensor: Tensor) -> list[datetime]:
    elements = text_list(as_list(value))
    if set(map(type, elements)) <= {str}:
        return [parse(each) for each in elements]
    if all(isinstance(each, datetime) for each in elements):
        return elements  # type: ignore[return-value]
    raise refuse(value, "list[datetime]")


def to_instance(wanted: type) -> HandOver:
    def hand_over(value: Any, tensor: Tensor) -> Any:
        if isinstance(value, wanted):
            return value
        raise refuse(value, wanted.__name__)

    return hand_over


# For each annotation of a parameter that is one input: its content type, and what hands a decoded value over.
ANNOTATIONS: dict[Any, tuple[str, HandOver]] = {
    np.ndarray: ("np", to_array),
    list[str]: ("str", to_texts),
    list[bytes]: ("np", to_octets),
    list[datetime]: ("datetime", to_moments),
}

# Content types that give what is neither text nor bytes, and the one annotation of a list that takes it.
UNFIT: dict[str | None, Any] = {"datetime": list[datetime], "pd_json": None}


@dataclass(frozen=True)
class Slot:
    """One input, and how it reaches predict()."""

    tensor: MetadataTensor
    content_type: str
    hand_over: HandOver

    def value(self, sent: RequestInput, request_level: str | None) -> Any:
        """`sent` as its parameter is annotated; InvalidInput where it cannot be."""
        value = decode_tensor(sent, input_codecs[self.tensor.content_type or request_level or self.content_type])
        try:
            return self.hand_over(value, sent)
        except InferenceError as error:
            raise error.about("input", sent.name, is_declared=True) from None


def as_declared(sent: RequestInput, tensor: MetadataTensor) -> RequestInput:
    """`sent` for a column of a frame: text, bytes, JSON or datetimes as METADATA says, whatever the client calls it.

    The client's content type says how to decode; a model trained on text would take bytes for a stranger.
    """
    named = sent.parameters.get("content_type")
    declared = tensor.content_type
    if declared is not None and (named is None or (named, declared) == ("str", "datetime")):
        return RequestInput.of(sent.name, sent.datatype, sent.data, {**sent.parameters, **tensor.parameters})
    if declared not in SHIPPED or declared == named or (named, declared) == ("str", "pd_json"):  # text is JSON, too
        return sent
    codec = find_input_codec(declared)
    value = decode_tensor(sent, codec)
    try:
        made = codec.encode_input(sent.name, value)
    except InferenceError as error:
        raise error.about("input", sent.name, is_declared=True) from None
    array = made.data.reshape(sent.shape) if made.data.size == sent.data.size else made.data
    return RequestInput.of(sent.name, made.datatype, array, made.parameters)


def bind(predict: Callable[..., Any], metadata: ModelMetadata) -> tuple[Arguments, set[str]]:
    """What makes predict()'s arguments of a request, and the names of the inputs it can do without.

    Raises SetupError where the signature and METADATA disagree.
    """
    check_content_types(metadata)
    with placed(predict):
        return bind_parameters(predict, metadata)


@contextmanager
def placed(function: Any) -> Iterator[None]:
    """Has a SetupError about `function` begin with its file and line."""
    try:
        yield
    except SetupError as error:
        raise SetupError(": ".join(filter(None, (definition(function), str(error))))) from None


def bind_parameters(predict: Callable[..., Any], metadata: ModelMetadata) -> tuple[Arguments, set[str]]:
    parameters = plain_parameters(predict)
    hints = annotations_of(predict)
    if len(parameters) == 1 and (whole := bind_whole(parameters[0].name, hints, metadata)):
        return whole, set()
    taken, declared = {each.name for each in parameters}, {tensor.name for tensor in metadata.inputs}
    slots = {}
    for tensor in metadata.inputs:
        if tensor.name in taken:
            slots[tensor.name] = slot(tensor, hints.get(tensor.name, np.ndarray))
    if taken != declared:
        raise SetupError(
            f"predict() and METADATA disagree: predict() takes {listed(sorted(taken))} after the model, "
            f"METADATA declares {listed(sorted(declared))}{advice(parameters, hints, declared)}"
        )
    return by_name(slots, metadata), {each.name for each in parameters if each.default is not each.empty}


def advice(parameters: list[inspect.Parameter], hints: Mapping[str, Any], declared: set[str]) -> str:
    """What a parameter that stands for no input was likely meant for, and what takes an input that none can."""
    if odd := sorted(name for name in declared if not str(name).isidentifier() or keyword.iskeyword(name)):
        return (
            f"; no parameter can be called {listed(odd)}: take the whole request by a single one, that is a "
            "pd.DataFrame, a dict[str, np.ndarray] or an InferenceRequest"
        )
    if not parameters:
        return "; its first parameter is the model, which load() returned"
    name = parameters[0].name
    if len(parameters) == 1 and name not in hints:
        return f'; one that takes the whole request says so, as in "{name}: pd.DataFrame"'
    return ""


def check_content_types(metadata: ModelMetadata) -> None:
    """SetupError where METADATA names a content type that is none, or that its datatype cannot have."""
    subject = "METADATA, the model"
    try:
        if metadata.content_type is not None:
            find_request_codec(metadata.content_type)
        for tensor in (*metadata.inputs, *metadata.outputs):
            subject = f'METADATA, tensor "{tensor.name}"'
            if tensor.content_type is not None:
                find_input_codec(tensor.content_type)
            if tensor.content_type in SHIPPED - {"np"} and tensor.datatype != "BYTES":
                raise InvalidInput(
                    subject="datatype", expected=f"BYTES for content type {tensor.content_type}", got=tensor.datatype
                )
    except InvalidInput as error:
        raise SetupError(f"{subject}: {error}") from None


def check_others(module: Any) -> None:
    """SetupError where load() or warm_up() is no plain function."""
    for name in ("load", "warm_up"):
        function = getattr(module, name, None)
        with placed(function):
            check_plain(name, function)


def check_plain(name: str, function: Any) -> None:
    """SetupError for a function that only begins when it is called, and returns nothing yet."""
    if inspect.iscoroutinefunction(function):
        raise SetupError(f"{name}() is async; expected a plain function, which threads call")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise SetupError(f"{name}() is a generator, by its yield; expected a plain function, which returns")


def plain_parameters(predict: Callable[..., Any]) -> list[inspect.Parameter]:
    """predict()'s parameters after the model; SetupError for what is no function of plain parameters."""
    if not hasattr(predict, "__name__"):  # which a partial, or an object that can be called, has not
        raise SetupError(f"predict is a {type(predict).__name__}; expected a plain function, by def")
    check_plain("predict", predict)
    parameters = list(inspect.signature(predict).parameters.values())
    if not parameters:
        raise SetupError("predict() takes no parameter; its first is what load() returned")
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SetupError(f'predict(), parameter "{parameter.name}": expected a plain parameter, no *, ** or /')
    return parameters[1:]


def annotations_of(predict: Callable[..., Any]) -> dict[str, Any]:
    """The annotations by parameter, in the words of ANNOTATIONS: `X | None` as X, NDArray[...] as np.ndarray."""
    try:
        hints = typing.get_type_hints(predict)
    except Exception as error:  # a name, or a member of a module, that is not there; text that is no expression
        raise SetupError(f"predict(): an annotation cannot be resolved: {error}") from None
    return {name: simple(hint) for name, hint in hints.items()}


def simple(hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    alias = getattr(origin or hint, "__value__", None)  # from Python 3.12 on, NDArray is a `type` statement
    if alias is not None:
        return simple(alias)
    if origin in (typing.Union, types.UnionType):
        kept = [each for each in arguments if each is not type(None)]
        return simple(kept[0]) if len(kept) == 1 else hint
    if origin is np.ndarray or hint is Any:
        return np.ndarray
    if origin in (dict, list) and arguments:
        return types.GenericAlias(origin, tuple(simple(each) for each in arguments))
    return origin if origin in (dict, list) else hint


def slot(tensor: MetadataTensor, hint: Any) -> Slot:
    if isinstance(hint, Hashable) and hint in ANNOTATIONS:
        content_type, hand_over = ANNOTATIONS[hint]
        if hint is not np.ndarray and tensor.datatype != "BYTES":
            raise SetupError(
                f'predict(), parameter "{tensor.name}": {hint} takes BYTES, METADATA declares {tensor.datatype}'
            )
        if hint is not np.ndarray and tensor.content_type in UNFIT and hint != UNFIT[tensor.content_type]:
            raise SetupError(
                f'predict(), parameter "{tensor.name}": content type {tensor.content_type} of METADATA is no {hint}'
            )
        return Slot(tensor, content_type, hand_over)
    if isinstance(hint, type) and tensor.content_type not in SHIPPED and tensor.content_type in input_codecs:
        return Slot(tensor, tensor.content_type, to_instance(hint))
    name = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else hint
    raise SetupError(
        f'predict(), parameter "{tensor.name}": cannot be given a {name}; expected np.ndarray, list[str], list[bytes] '
        "or list[datetime] for one input, or a single parameter that is a pd.DataFrame, a dict[str, np.ndarray] or "
        "an InferenceRequest for all of them"
    )


def by_name(slots: dict[str, Slot], metadata: ModelMetadata) -> Arguments:
    def arguments(request: InferenceRequest, inputs: dict[str, RequestInput]) -> dict[str, Any]:
        level = request_level(request, metadata) if request.parameters or metadata.content_type else None
        serves_inputs = level if level in ("np", "str") else None
        values = {}
        for name, sent in inputs.items():
            values[name] = slots[name].value(sent, serves_inputs)
        return values

    return arguments


def request_level(request: InferenceRequest, metadata: ModelMetadata) -> str | None:
    """The request's own content type, else METADATA's; InvalidInput for one that is unknown."""
    level = request.parameters.get("content_type")
    if level is None:
        level = metadata.content_type
    if level is not None:
        find_request_codec(level)
    return level


def bind_whole(name: str, hints: dict[str, Any], metadata: ModelMetadata) -> Arguments | None:
    """What makes the one argument that is the whole request, if the parameter's annotation says so."""
    hint = hints.get(name)
    if hint is InferenceRequest:
        return lambda request, inputs: {name: request}
    if hint in (dict, dict[str, np.ndarray]):
        slots = {tensor.name: slot(tensor, np.ndarray) for tensor in metadata.inputs}
        arrays = by_name(slots, metadata)
        return lambda request, inputs: {name: arrays(request, inputs)}
    if isinstance(hint, type) and hint.__name__ == "DataFrame" and hint.__module__.startswith("pandas"):
        check_columns(metadata)
        return decoded_whole(name, "pd", to_frame, metadata)
    custom = metadata.content_type
    if isinstance(hint, type) and hint not in ANNOTATIONS and custom is not None and custom not in SHIPPED:
        return decoded_whole(name, custom, lambda value, tensors: to_instance(hint)(value, tensors[0]), metadata)
    return None


def check_columns(metadata: ModelMetadata) -> None:
    """SetupError where METADATA declares no column, or one of bytes, which equal no text, without saying so."""
    if metadata.content_type not in (None, "pd"):  # another codec makes the frame
        return
    for tensor in metadata.inputs:
        if not tensor.shape:
            raise SetupError(f'METADATA, tensor "{tensor.name}": shape: a column of a DataFrame has rows, [-1]; got []')
        if tensor.datatype == "BYTES" and tensor.content_type is None:
            raise SetupError(
                f'METADATA, tensor "{tensor.name}": the DataFrame would have bytes in this column; '
                'expected content_type="str" for text, or "datetime", or "np" for bytes'
            )


def to_frame(value: Any, tensors: Sequence[Tensor]) -> Any:
    if is_frame(value):
        return value
    if len(tensors) == 1 and isinstance(value, list | np.ndarray):
        import pandas as pd

        return pd.DataFrame({tensors[0].name: list(value)})
    raise refuse(value, "a DataFrame")


def decoded_whole(name: str, default: str, hand_over: Callable[..., Any], metadata: ModelMetadata) -> Arguments:
    """The whole request, its inputs in METADATA's order and with METADATA's content types, by a request codec (C1)."""

    def arguments(request: InferenceRequest, inputs: dict[str, RequestInput]) -> dict[str, Any]:
        level = request_level(request, metadata)
        codec = find_request_codec(default if level is None else level)
        tensors = [as_declared(inputs[each.name], each) for each in metadata.inputs]
        value = codec.decode_request(InferenceRequest(tensors, parameters=request.parameters))
        if default == "pd" and level in ("np", "str") and len(tensors) == 1:  # they know tensors, and no columns
            value = decode_frame(tensors)
        return {name: hand_over(value, tensors)}

    return arguments
