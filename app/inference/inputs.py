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

    Raise InvalidInput if an input is unknown, duplicate, or missing and not optional, or if its
    datatype, rank or fixed dimensions differ from the declaration.
    """
    matched: dict[str, RequestInput] = {}
    for tensor in request.inputs:
        declaration = declared.get(tensor.name)
        if declaration is None:
            raise InvalidInput(
                "unknown input", expected=join_names(declared), got=format_value(tensor.name)
            )
        if tensor.name in matched:
            raise InvalidInput("sent twice").about("input", tensor.name, is_declared=True)
        matched[tensor.name] = _match_input(tensor, declaration)

    if len(matched) < len(declared):
        for declaration in declared.values():
            if declaration.name not in matched and not declaration.optional:
                raise _missing_input(declaration.name, declared, matched)
    return matched


def _missing_input(
    name: str, declared: Declared, matched: Mapping[str, RequestInput]
) -> InvalidInput:
    """Return the error for an input that is missing and not optional."""
    required: list[str] = []
    optional: list[str] = []
    for tensor in declared.values():
        names = optional if tensor.optional else required
        names.append(tensor.name)
    expected = join_names(required)
    if optional:
        expected += f" (optional: {join_names(optional)})"
    error = InvalidInput("missing", expected=expected, got=join_names(matched))
    return error.about("input", name, is_declared=True)


def _match_input(tensor: RequestInput, declared: MetadataTensor) -> RequestInput:
    """Return the input in its declared rank, with the declared missing value (C13).

    Raise InvalidInput if its datatype or its shape does not match.
    """
    if tensor.datatype != declared.datatype:
        raise _mismatch(tensor, "datatype", declared.datatype, tensor.datatype)
    array = match_rank(tensor.data, declared.shape)
    if not matches_shape(array.shape, declared.shape):
        expected = format_shape(declared.shape)
        raise _mismatch(tensor, "shape", expected, format_shape(tensor.shape))

    has_other_rank = array is not tensor.data
    if has_other_rank:
        # Another object, because predict() can take the request itself, which keeps its rank.
        tensor = RequestInput.of(tensor.name, tensor.datatype, array, tensor.parameters)
    tensor.missing = declared.missing
    return tensor


def _mismatch(tensor: RequestInput, subject: str, expected: str, got: str) -> InvalidInput:
    error = InvalidInput(subject=subject, expected=expected, got=got)
    return error.about("input", tensor.name, is_declared=True)


def match_rank(array: np.ndarray, declared: Sequence[int]) -> np.ndarray:
    """Convert a vector [N] to a column [N,1] or vice versa if that is declared (R15).

    Return `array` itself if no conversion is necessary or possible.
    """
    if array.ndim == len(declared):
        return array
    is_declared_vector = len(declared) == 1
    if is_declared_vector and array.ndim == 2 and array.shape[1] == 1:
        return array.reshape(-1)
    is_declared_column = len(declared) == 2 and declared[1] == 1
    if is_declared_column and array.ndim == 1:
        return array.reshape(-1, 1)
    return array


def matches_shape(shape: Sequence[int], declared: Sequence[int]) -> bool:
    """Return True if the ranks are equal, and each dimension that is declared as fixed."""
    if len(shape) != len(declared):
        return False
    for size, declared_size in zip(shape, declared):  # noqa: B905 - equal lengths; any() is slower
        if declared_size != size and declared_size != -1:
            return False
    return True
