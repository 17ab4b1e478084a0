"""The `data` of a tensor in JSON ↔ ndarray, without a Python loop over numbers (R10-R14)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from app.datatypes import Datatype, check_count, narrow, object_array, reshape, texts
from app.errors import InvalidInput, shorten

JSON_TYPES = {
    bool: "booleans",
    int: "integers",
    float: "fractions",
    str: "strings",
    dict: "objects",
    list: "lists",
    type(None): "null",
}
# What an element may be, by the datatype's kind.
ACCEPTED: dict[str, set[type]] = {
    "b": {bool, int},
    "i": {int, float},
    "u": {int, float},
    "f": {int, float, type(None)},
    "O": {str, type(None)},
}
# From here on a float no longer tells which integer the client wrote.
EXACT = 2**53
# Comparing so many floats takes Python less time than numpy its errstate.
FEW = 16


def from_json(data: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """The tensor of `shape` that parsed JSON holds: flat, nested, a bare scalar (R10), or an array of its numbers.

    Raises InvalidInput where nesting is ragged, the count is not the shape's, or an element is not exactly of
    the datatype (R11, R12).
    """
    elements, types = flatten(data)
    check_count(shape, len(elements))
    if strangers := types - ACCEPTED[datatype.kind]:
        got = " and ".join(sorted(JSON_TYPES[each] for each in strangers))
        place = next(place for place, each in enumerate(elements) if type(each) in strangers)
        told = shorten(repr(elements[place]))
        raise InvalidInput(f"data: {datatype.name} does not take {got}; element {place} is {told}")
    return reshape(CONVERTERS[datatype.kind](elements, types, datatype), shape)


def flatten(data: Any) -> tuple[Any, set[type]]:
    """The elements of nested lists in row-major order, and the types among them; an array of numbers is flat."""
    if isinstance(data, np.ndarray):
        return data, {float}
    elements = data if isinstance(data, list) else [data]
    types = set(map(type, elements))
    while list in types:
        if len(types) > 1 or len(set(map(len, elements))) > 1:
            raise InvalidInput("data: the nested lists are not rectangular")
        elements = list(chain.from_iterable(elements))
        types = set(map(type, elements))
    return elements, types


def booleans(elements: list, types: set[type], datatype: Datatype) -> np.ndarray:
    if int in types and (strangers := set(elements) - {0, 1}):
        raise InvalidInput(f"data: BOOL takes true, false, 1 and 0; got {shorten(repr(min(strangers)))}")
    return np.array(elements, bool)


def integers(elements: Any, types: set[type], datatype: Datatype) -> np.ndarray:
    if isinstance(elements, np.ndarray):
        return narrow(elements, datatype)
    if float in types:
        check_whole(elements)
    try:
        return np.array(elements, datatype.dtype)
    except OverflowError:
        limits = np.iinfo(datatype.dtype)
        stray = next(each for each in elements if not limits.min <= each <= limits.max)
        raise InvalidInput(
            f"data: {datatype.name} takes {limits.min} to {limits.max}, got {shorten(repr(stray))}"
        ) from None


def check_whole(elements: list) -> None:
    for element in elements:
        if type(element) is float and (not element.is_integer() or abs(element) >= EXACT):
            raise InvalidInput(
                f"data: {element!r} is not taken for an integer; "
                "write integers without fraction or exponent, within the datatype's range"
            )


def floats(elements: Any, types: set[type], datatype: Datatype) -> np.ndarray:
    if 0 < len(elements) <= FEW and type(None) not in types and within(elements, datatype.largest):
        return np.array(elements, datatype.dtype)
    with np.errstate(over="ignore"):
        array = np.asarray(elements, "<f8").astype(datatype.dtype, copy=False)
    # JSON has no infinity, so one here is a number that the datatype cannot hold.
    if np.count_nonzero(np.isinf(array)):  # any() is Python's, and thrice as slow for a few
        stray = elements[int(np.argmax(np.isinf(array)))]
        raise InvalidInput(f"data: {datatype.name} takes ±{np.finfo(datatype.dtype).max}, got {shorten(repr(stray))}")
    return array


def within(numbers: list[float], largest: float) -> bool:
    return -largest <= min(numbers) and max(numbers) <= largest


def strings(elements: list, types: set[type], datatype: Datatype) -> np.ndarray:
    return object_array(elements)


CONVERTERS = {"b": booleans, "i": integers, "u": integers, "f": floats, "O": strings}


def to_json(array: np.ndarray, datatype: Datatype, nonfinite: str = "error") -> Any:
    """The flat `data` of `array`, for orjson: an ndarray of numbers, or a list of strings.

    Raises InvalidInput for ±Infinity unless `nonfinite` is "null" (R12), and for BYTES that are no UTF-8 (R14).
    """
    if datatype.kind == "O":
        return text_elements(array.ravel().tolist())
    if datatype.kind == "f" and nonfinite == "error" and np.count_nonzero(np.isinf(array)):
        raise InvalidInput("data: JSON has no Infinity; ask for binary output (JSON_NONFINITE=null makes it null)")
    return np.ascontiguousarray(array).reshape(-1)


def text_elements(elements: list[bytes | str | None]) -> list[str | None]:
    try:
        return texts(elements)
    except UnicodeDecodeError:
        raise InvalidInput(
            "data: JSON carries UTF-8 text only, and these bytes are not; ask for binary output, "
            'or let METADATA declare content_type="base64"'
        ) from None
