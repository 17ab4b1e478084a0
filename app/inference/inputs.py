"""Validation of a request's inputs against METADATA (R15)."""

from collections.abc import Mapping, Sequence

import numpy as np

from app.protocol.datatypes import format_shape
from app.protocol.errors import InvalidInput, format_value, join_names
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import RequestInput

# Declared inputs or outputs by name.
Declared = Mapping[str, MetadataTensor]


def match_inputs(request: InferenceRequest, declared: Declared) -> dict[str, RequestInput]:
    """Return the request's inputs by name, each in its declared rank (R15).

    Raise InvalidInput if an input is unknown, duplicate, or missing and not optional, or if its datatype, rank
    or fixed dimensions differ from the declaration.
    """
    matched: dict[str, RequestInput] = {}
    for sent in request.inputs:
        tensor = declared.get(sent.name)
        if tensor is None:
            raise InvalidInput(
                "unknown input", expected=join_names(declared), got=format_value(sent.name)
            )
        if sent.name in matched:
            raise InvalidInput("sent twice").about("input", sent.name, is_declared=True)
        matched[sent.name] = match_input(sent, tensor)
    if len(matched) < len(declared):
        for tensor in declared.values():
            if tensor.name not in matched and not tensor.optional:
                raise missing_input(tensor.name, declared, matched)
    return matched


def missing_input(
    name: str, declared: Declared, matched: Mapping[str, RequestInput]
) -> InvalidInput:
    """Return the error for an input that is missing and not optional."""
    expected = join_names(tensor.name for tensor in declared.values() if not tensor.optional)
    optional = [tensor.name for tensor in declared.values() if tensor.optional]
    if optional:
        expected += f" (optional: {join_names(optional)})"
    error = InvalidInput("missing", expected=expected, got=join_names(matched))
    return error.about("input", name, is_declared=True)


def match_input(sent: RequestInput, tensor: MetadataTensor) -> RequestInput:
    if sent.datatype != tensor.datatype:
        error = InvalidInput(subject="datatype", expected=tensor.datatype, got=sent.datatype)
        raise error.about("input", sent.name, is_declared=True)
    array = match_rank(sent.data, tensor.shape)
    if not matches_shape(array.shape, tensor.shape):
        error = InvalidInput(
            subject="shape", expected=format_shape(tensor.shape), got=format_shape(sent.shape)
        )
        raise error.about("input", sent.name, is_declared=True)
    sent = (
        sent
        if array is sent.data
        else RequestInput.of(sent.name, sent.datatype, array, sent.parameters)
    )
    sent.missing = tensor.missing
    return sent


def match_rank(array: np.ndarray, declared: Sequence[int]) -> np.ndarray:
    """Convert a vector [N] to a column [N,1] or vice versa if that is declared (R15). Return other arrays unchanged."""
    if array.ndim == len(declared):
        return array
    if len(declared) == 1 and array.ndim == 2 and array.shape[1] == 1:
        return array.reshape(-1)
    is_column = len(declared) == 2 and declared[1] == 1
    return array.reshape(-1, 1) if is_column and array.ndim == 1 else array


def matches_shape(shape: Sequence[int], declared: Sequence[int]) -> bool:
    if len(shape) != len(declared):
        return False
    for got, expected in zip(shape, declared):  # noqa: B905, SIM110 - equal lengths; any() is slower
        if expected != got and expected != -1:
            return False
    return True
