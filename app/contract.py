"""What METADATA promises, held against what clients send (R15, R16) and what predict() returns."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from app.codecs import SHIPPED, StringCodec, find_input_codec
from app.codecs.datetimes import DatetimeCodec
from app.codecs.frames import PandasJsonCodec, cells, encode_column, encode_moments, is_column
from app.datatypes import as_array, datatype_of, object_array, octets, plain_array, shape_text, text_array
from app.errors import NOTHING, InferenceError, InvalidInput, ModelError, SetupError
from app.types import InferenceRequest, MetadataTensor, ModelMetadata, Parameters, RequestInput, ResponseOutput

# What METADATA declares of the inputs, or of the outputs, by name.
Declared = Mapping[str, MetadataTensor]


def match_inputs(request: InferenceRequest, declared: Declared, optional: Container[str]) -> dict[str, RequestInput]:
    """The request's inputs by name, each in its declared rank (R15).

    Raises InvalidInput for an input that is unknown, sent twice, missing without being `optional`, or of another
    datatype, rank or fixed dimension than declared.
    """
    matched: dict[str, RequestInput] = {}
    for sent in request.inputs:
        tensor = declared.get(sent.name)
        if tensor is None:
            raise InvalidInput("unknown input", expected=listed(declared), got=quoted(sent.name)).about(
                "input", sent.name
            )
        if sent.name in matched:
            raise InvalidInput("sent twice").about("input", sent.name, is_declared=True)
        matched[sent.name] = match_input(sent, tensor)
    if len(matched) < len(declared):
        for name in declared:
            if name not in matched and name not in optional:
                error = InvalidInput("missing", expected=needed(declared, optional), got=listed(matched))
                raise error.about("input", name, is_declared=True)
    return matched


def needed(declared: Declared, optional: Container[str]) -> str:
    """The inputs by name, those that may be left out apart."""
    free = [name for name in declared if name in optional]
    return listed(name for name in declared if name not in optional) + (
        f", and may take {listed(free)}" if free else ""
    )


def match_input(sent: RequestInput, tensor: MetadataTensor) -> RequestInput:
    """`sent` in its declared rank; InvalidInput where it is not what `tensor` declares."""
    if sent.datatype != tensor.datatype:
        error = InvalidInput(subject="datatype", expected=tensor.datatype, got=sent.datatype)
        raise error.about("input", sent.name, is_declared=True)
    array = fit(sent.data, tensor.shape)
    if not matches(array.shape, tensor.shape):
        error = InvalidInput(subject="shape", expected=shape_text(tensor.shape), got=shape_text(sent.shape))
        raise error.about("input", sent.name, is_declared=True)
    return sent if array is sent.data else RequestInput.of(sent.name, sent.datatype, array, sent.parameters)


def fit(array: np.ndarray, declared: Sequence[int]) -> np.ndarray:
    """Return `array` in the declared rank if it is a column [N,1] or a vector [N] and the other is declared (R15)."""
    if array.ndim == len(declared):
        return array
    if len(declared) == 1 and array.ndim == 2 and array.shape[1] == 1:
        return array.reshape(-1)
    is_column = len(declared) == 2 and declared[1] == 1
    return array.reshape(-1, 1) if is_column and array.ndim == 1 else array


def matches(shape: Sequence[int], declared: Sequence[int]) -> bool:
    if len(shape) != len(declared):
        return False
    for got, expected in zip(shape, declared):  # noqa: B905, SIM110 - as long as each other; any() is dearer
        if expected != got and expected != -1:
            return False
    return True


def wanted_outputs(request: InferenceRequest, declared: Declared) -> list[str]:
    """The names of the outputs asked for, in order (R16); InvalidInput for one that is unknown or asked twice."""
    wanted: list[str] = []
    for output in request.outputs:
        if output.name not in declared:
            error = InvalidInput("unknown output", expected=listed(declared), got=quoted(output.name))
            raise error.about("output", output.name)
        if output.name in wanted:
            raise InvalidInput("requested twice").about("output", output.name, is_declared=True)
        wanted.append(output.name)
    return wanted


def match_outputs(values: dict[str, Any], declared: Declared, wanted: Container[str] = ()) -> dict[str, ResponseOutput]:
    """What predict() returned as outputs, each cast to its declared datatype.

    Raises ModelError for an output that is undeclared, of another kind of datatype, rank or fixed dimension than
    declared, or that its datatype cannot hold; or that is missing, unless some are `wanted` and it is none of them.
    """
    for name in values:
        if name not in declared:
            raise ModelError(f"predict() returned output {quoted(name)}, which METADATA does not declare")
    outputs = {}
    for name, tensor in declared.items():
        if name not in values:
            if wanted and name not in wanted:
                continue
            problem = f"predict() did not return it, but {listed(values)}"
            raise ModelError(problem).about("output", name, is_declared=True)
        try:
            outputs[name] = to_output(values[name], tensor)
        except (InferenceError, TypeError, ValueError) as error:
            raise not_declared(error).about("output", name, is_declared=True) from None
    return outputs


def not_declared(error: Exception) -> ModelError:
    """Return the error for an output that does not match METADATA. Its values stay out of the log."""
    problem = "predict() returned a result that does not match METADATA"
    if isinstance(error, InferenceError):
        return ModelError(f"{problem}: {error.log_text()}", got=NOTHING if error.got is None else error.got)
    return ModelError(problem, got=str(error))


def to_output(value: Any, tensor: MetadataTensor) -> ResponseOutput:
    """`value` as the output that `tensor` declares, encoded by its content type; raises for what is no such output."""
    declared, parameters = tensor.content_type, tensor.parameters
    plain = declared in (None, "np", "str")
    array: Any
    if plain and isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, ResponseOutput):
        array, parameters = fit(value.data, tensor.shape), {**parameters, **sayable(value.parameters)}
    elif is_column(value) and declared != "np":
        array, content_type = column(value, tensor)
        parameters = {"content_type": content_type} if content_type else parameters
    elif isinstance(value, list) and not value and tensor.shape[:1] == [-1] and (plain or declared in SHIPPED):
        shape = [max(0, each) for each in tensor.shape]  # an empty list tells no other dimension
        array = np.empty(shape, datatype_of(tensor.datatype).dtype)
    elif plain:
        array = value
    else:
        array = encoded(value, tensor)
    array = cast(array, tensor.datatype)
    if not matches(array.shape, tensor.shape):
        raise ModelError(f"shape {shape_text(array.shape)}", expected=shape_text(tensor.shape))
    return ResponseOutput.of(tensor.name, tensor.datatype, array, parameters)


def column(value: Any, tensor: MetadataTensor) -> tuple[Any, str | None]:
    """What is in a column of pandas', for the output that `tensor` declares, and its content type if the data has it.

    What is declared decides before what is in it: that may be gaps, or nothing.
    """
    declared, shape = tensor.content_type, tensor.shape
    if declared == DatetimeCodec.ContentType:
        return fit(encode_moments(cells(value))[1], shape), None
    if declared == StringCodec.ContentType:
        return fit(object_array(cells(value)), shape), None
    if declared is not None:
        return encoded(cells(value), tensor), None
    if tensor.datatype != "BYTES" and value.dtype == object:
        return fit(plain_array(list(value)), shape), None
    _, array, content_type = encode_column(value, missing=StringCodec)
    if content_type == PandasJsonCodec.ContentType and tensor.datatype != "BYTES":
        raise ModelError(f"{tensor.datatype} cannot represent the missing values of {value.dtype}", subject="data")
    return fit(array, shape), content_type


def encoded(value: Any, tensor: MetadataTensor) -> np.ndarray:
    """What the codec of the output's content type makes of `value`."""
    if isinstance(value, list | tuple) and tensor.content_type in ("base64", "datetime"):
        value = plain_array(value, object)
    array = find_input_codec(tensor.content_type).encode_output(tensor.name, value).data
    if isinstance(value, np.ndarray) and tensor.content_type in SHIPPED:  # which have an element for each
        return fit(array.reshape(value.shape), tensor.shape)
    if len(tensor.shape) < 2 and array.ndim == 2 and array.shape[1] == 1:
        return array.reshape(-1) if tensor.shape or len(array) != 1 else array.reshape(())
    return fit(array, tensor.shape)


def sayable(parameters: Parameters) -> Parameters:
    """A response's `parameters`, numpy's scalars as Python's; ModelError where a transport cannot say them (R17).

    Without the size of a tensor's bytes, which is the transport's to say.
    """
    said = {name: each.item() if isinstance(each, np.generic) else each for name, each in parameters.items()}
    said.pop("binary_data_size", None)
    for name, each in said.items():
        fits = isinstance(each, str) or (isinstance(each, int) and -(2**63) <= each < 2**64)
        fits = fits or (isinstance(each, float) and math.isfinite(each))
        if not isinstance(name, str) or not fits or not is_unicode(f"{name}{each}"):
            expected = "a string, a finite number of 64 bits or a boolean"
            raise ModelError(subject=f"parameters: {quoted(name)}", expected=expected, got=each)
    return said


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cast(value: Any, name: str) -> np.ndarray:
    """`value` as an array of the datatype called `name`, of the same kind, where nothing but rounding is lost."""
    datatype = datatype_of(name)
    if datatype.kind == "O":
        array = text_array(value)
        elements = array.ravel().tolist()
        with suppress(TypeError, UnicodeEncodeError):  # where all are str, they stay it: JSON wants no bytes
            "".join(elements).encode()
            return object_array(elements).reshape(array.shape)
        return object_array(octets(elements)).reshape(array.shape)
    if type(value) is np.ndarray and value.dtype == datatype.dtype:
        return value
    if datatype.kind == "f":
        value = plain_array(value)
        if value.size and value.dtype.kind in "iu":
            remedy = "use astype(float)"
            raise InvalidInput(subject="datatype", expected=name, got=str(value.dtype), remedy=remedy)
    return as_array(value, datatype)


def check_metadata(metadata: Any) -> None:
    """SetupError unless `metadata` is a ModelMetadata with a name, a version and tensors, none declared twice."""
    if not isinstance(metadata, ModelMetadata):
        raise SetupError(f"METADATA: expected a ModelMetadata, got {type(metadata).__name__}")
    for label in ("name", "version"):
        value = getattr(metadata, label)
        if not isinstance(value, str) or not value:
            raise SetupError(f"METADATA, {label}: expected text, got {value!r}")
    for label in ("inputs", "outputs"):
        tensors = getattr(metadata, label)
        if not isinstance(tensors, list | tuple):
            raise SetupError(f"METADATA, {label}: expected a list of MetadataTensor, got {type(tensors).__name__}")
        if strangers := [type(each).__name__ for each in tensors if not isinstance(each, MetadataTensor)]:
            raise SetupError(f"METADATA, {label}: expected a list of MetadataTensor, got one with {strangers[0]} in it")
        repeated = {tensor.name for tensor in tensors if [each.name for each in tensors].count(tensor.name) > 1}
        if repeated:
            raise SetupError(f"METADATA declares {listed(sorted(repeated))} twice")


def listed(words: Iterable[Any]) -> str:
    """`words` as an error text lists them."""
    return ", ".join(map(quoted, words)) or "none"


def quoted(word: Any) -> str:
    """A name in quotes; what is no string, as Python shows it."""
    return f'"{word}"' if isinstance(word, str) else repr(word)
