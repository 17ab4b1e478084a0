"""Conversion between the `data` of JSON tensors and arrays, without Python loops over numbers (R10 to R14)."""

from base64 import b64decode
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from app.protocol.datatypes import (
    Datatype,
    as_texts,
    cast_in_range,
    check_count,
    object_array,
    out_of_range,
    reshape,
)
from app.protocol.errors import InvalidInput, format_value

RAW = "bytes"  # content type of BYTES tensors whose elements are base64 text in JSON (C12)
EXACT = 2**53  # from this value on, a float does not represent every integer exactly
FEW = 16  # for at most this number of floats, a comparison in Python is faster than np.errstate


def from_json(data: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """Return an array of `shape` from a list, nested lists, a scalar (R10) or an array of numbers.

    Raise InvalidInput for ragged lists, a wrong number of elements, or an element out of range (R11, R12).
    """
    elements, types = flatten(data)
    check_count(shape, len(elements))
    expected, accepted, convert = CONVERSIONS[datatype.kind]
    if others := types - accepted:
        at, element = next(
            (index, each) for index, each in enumerate(elements) if type(each) in others
        )
        raise InvalidInput(
            subject=f"data[{at}]",
            expected=f"{expected} for {datatype.name}",
            got=format_value(element),
        )
    return reshape(convert(elements, types, datatype), shape)


def flatten(data: Any) -> tuple[Any, set[type]]:
    """Return the elements of nested lists in row-major order, and the set of their types."""
    if isinstance(data, np.ndarray):
        return data, {float}
    elements = data if isinstance(data, list) else [data]
    types = set(map(type, elements))
    while list in types:
        if len(types) > 1 or len(set(map(len, elements))) > 1:
            raise InvalidInput(
                "nested lists of different lengths", expected="lists of equal lengths"
            )
        elements = list(chain.from_iterable(elements))
        types = set(map(type, elements))
    return elements, types


def booleans(elements: list[Any], types: set[type], datatype: Datatype) -> np.ndarray:
    if int in types and (others := set(elements) - {0, 1}):
        raise InvalidInput(subject="data", expected="true, false, 1 or 0 for BOOL", got=min(others))
    return np.array(elements, bool)


def integers(elements: Any, types: set[type], datatype: Datatype) -> np.ndarray:
    if isinstance(elements, np.ndarray):
        return cast_in_range(elements, datatype)
    if float in types:
        for element in elements:
            if type(element) is float and (not element.is_integer() or abs(element) >= EXACT):
                expected = f"an integer without fraction or exponent for {datatype.name}"
                raise InvalidInput(subject="data", expected=expected, got=element)
    try:
        return np.array(elements, datatype.dtype)
    except OverflowError:
        limits = np.iinfo(datatype.dtype)
        raise out_of_range(
            datatype, next(each for each in elements if not limits.min <= each <= limits.max)
        ) from None


def floats(elements: Any, types: set[type], datatype: Datatype) -> np.ndarray:
    is_short = 0 < len(elements) <= FEW and type(None) not in types and not datatype.is_bf16
    if is_short and -datatype.largest <= min(elements) and max(elements) <= datatype.largest:
        return np.array(elements, datatype.dtype)
    with np.errstate(over="ignore"):
        array = datatype.round(np.asarray(elements, "<f8"))
    # JSON has no infinity, so an infinite value results from a number out of range.
    if np.count_nonzero(np.isinf(array)):  # faster than any() for few elements
        raise out_of_range(datatype, elements[int(np.argmax(np.isinf(array)))])
    return array


# Expected elements, their Python types and the conversion to an array, by the kind of the datatype.
CONVERSIONS: dict[str, tuple[str, set[type], Callable[[Any, set[type], Datatype], np.ndarray]]] = {
    "b": ("a boolean", {bool, int}, booleans),
    "i": ("an integer", {int, float}, integers),
    "u": ("an integer", {int, float}, integers),
    "f": ("a number", {int, float, type(None)}, floats),
    "O": ("a string", {str, type(None)}, lambda elements, types, datatype: object_array(elements)),
}


def to_json(array: np.ndarray, datatype: Datatype, nonfinite: str = "error") -> Any:
    """Return the flat `data` for orjson: an ndarray of numbers or a list of strings.

    Raise InvalidInput for ±Infinity unless `nonfinite` is "null" (R12), and for BYTES that are not UTF-8 text (R14).
    """
    if datatype.kind == "O":
        try:
            return as_texts(array.ravel().tolist())
        except UnicodeDecodeError:
            remedy = 'request binary output, or use content type "bytes"'
            raise InvalidInput(
                "JSON cannot represent bytes that are not UTF-8 text", remedy=remedy
            ) from None
    if datatype.kind == "f" and nonfinite == "error" and np.count_nonzero(np.isinf(array)):
        raise InvalidInput(
            "JSON cannot represent Infinity",
            remedy="request binary output, or set JSON_NONFINITE=null",
        )
    return np.ascontiguousarray(array).reshape(-1)


def from_base64(
    text: bytes | str | None, remedy: str = "send base64 text without line breaks"
) -> bytes:
    """Decode base64 text. Raise InvalidInput with the `remedy` if it is invalid."""
    try:
        return b64decode(text, validate=True)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise InvalidInput("invalid base64", remedy=remedy) from None
